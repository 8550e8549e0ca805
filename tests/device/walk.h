/* What a session does with a row: end, route, label, number of purchases, price, purchases, scores. */
#include "thrifty_model.h"

#define N_NUMBERS (5 + THRIFTY_N_COLUMNS + THRIFTY_N_SCORES)

static void walk(const float *row, uint64_t key, int point, double *number)
{
    thrifty_session session;
    int column, k, n_bought = 0;
    for (k = 0; k < N_NUMBERS; k++)
        number[k] = 0.0;
    thrifty_start_at(&session, key, point);
    while ((column = thrifty_next(&session)) >= 0) {
        number[5 + n_bought++] = column + 1;
        thrifty_give(&session, row[column]);
    }
    number[0] = column;
    if (!point) { /* the whole row at once ends alike */
        thrifty_session other;
        if (thrifty_walk(&other, key, row) != column || other.n_held != session.n_held ||
            thrifty_label(&other) != thrifty_label(&session))
            number[0] = -99;
    }
    number[1] = thrifty_route(&session);
    number[2] = thrifty_label(&session);
    number[3] = n_bought;
    number[4] = (double)thrifty_cost(&session);
    for (k = 0; k < THRIFTY_N_SCORES; k++)
        number[5 + THRIFTY_N_COLUMNS + k] = thrifty_score(&session, k);
}

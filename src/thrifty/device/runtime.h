/* @BANNER@
 *
 *     thrifty_session session;
 *     thrifty_start(&session, key);
 *     while ((column = thrifty_next(&session)) >= 0)
 *         thrifty_give(&session, measure(column));
 *     if (column == THRIFTY_DONE)
 *         use(thrifty_label(&session));
 *
 * A session is plain memory: copy it, store it, go on later.
 */
#ifndef THRIFTY_MODEL_H
#define THRIFTY_MODEL_H

#include <stdint.h>

#define THRIFTY_MODEL_ID "@IDENTITY@"
#define THRIFTY_DONE (-1)       /* the row is answered */
#define THRIFTY_ASK_SERVER (-2) /* the full model answers: send what the row holds */
#define THRIFTY_REFUSED (-3)    /* an infinite value, or nothing was asked for */
#define THRIFTY_N_COLUMNS @N_COLUMNS@
#define THRIFTY_N_SCORES @N_SCORES@
#define THRIFTY_N_STAGES @N_STAGES@
#define THRIFTY_N_POINTS @N_POINTS@
@CODES@
@ENUMS@
typedef struct {
    thrifty_sum score[@N_SUMS@];
@STATE@    thrifty_code code[@N_CODES@]; /* of columns, and of scores that gates read */
    uint16_t n_held;
    uint16_t stage;
    uint16_t point;
    int8_t status;
    uint8_t upper;
} thrifty_session;

/* Begin a row. The key decides where an operating point mixes two sets of thresholds; any number of the row will do. */
void thrifty_start(thrifty_session *session, uint64_t key);
/* Begin a row at another operating point, from 0 to THRIFTY_N_POINTS - 1. */
void thrifty_start_at(thrifty_session *session, uint64_t key, int point);
/* Column to give next, or THRIFTY_DONE, or THRIFTY_ASK_SERVER. */
int thrifty_next(const thrifty_session *session);
/* Give the column asked for: a number, or the number of a level. NaN is missing. Returns 0, or THRIFTY_REFUSED. */
int thrifty_give(thrifty_session *session, float value);
/* The column asked for is missing, or its level is unknown. Returns 0, or THRIFTY_REFUSED. */
int thrifty_give_missing(thrifty_session *session);
/* Begin a row whose columns are all at hand, and use those that are asked for: THRIFTY_DONE or THRIFTY_ASK_SERVER.
 * Nothing is refused: an infinity is larger or smaller than every other number. */
int thrifty_walk(thrifty_session *session, uint64_t key, const float *row);
/* Number of the predicted class so far; -1 before the first stage, and for a system that predicts numbers. */
int thrifty_label(const thrifty_session *session);
/* Log-odds of the second class, score of class k, or the predicted number, at the last stage. */
double thrifty_score(const thrifty_session *session, int k);
/* Price of what the row was given. */
float thrifty_cost(const thrifty_session *session);@COST_IN@
/* Number of the stage that answered, or would if the row stopped here; -1 before the first stage. */
int thrifty_route(const thrifty_session *session);

#ifdef THRIFTY_SELF_TEST
/* Walk rows whose routes are known; returns the number of rows that went another way. */
int thrifty_self_test(void);
#endif

#endif

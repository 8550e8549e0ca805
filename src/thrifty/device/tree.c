/* -- a tree of purchases: every row chooses what it buys next ------------------------------------ */

#define NOT_HELD 0xffu
#ifdef __GNUC__
#define APART __attribute__((noinline)) /* so that a call has room on the stack for one of them only */
#else
#define APART
#endif

/* Whether the row holds all columns of its node; if not, the place of the first that it lacks is what comes next. */
static int holds_all(thrifty_session *session)
{
    uint32_t at;
    for (at = node_starts[session->node]; at < node_starts[session->node + 1u]; at++) {
        session->next = held[at];
        if (session->level[session->next] == NOT_HELD)
            return 0;
    }
    return 1;
}

/* Natural logarithm of a positive number: its power of two, and a series in (m - 1) / (m + 1) of what is left. */
static double log_of(double value)
{
    double power = 0.0, ratio;
    volatile double square, total = 0.0, product;
    int n;
    for (; value < 0x1.6a09e667f3bcdp-1; power -= 1.0)
        value *= 2.0;
    for (; value > 0x1.6a09e667f3bcdp+0; power += 1.0)
        value *= 0.5;
    ratio = (value - 1.0) / (value + 1.0);
    square = ratio * ratio;
    for (n = @SERIES@; n > 0; n -= 2) {
        product = total * square;
        total = product + 1.0 / n;
    }
    product = 2.0 * ratio * total;
    total = power * 0x1.62e42fefa39efp-1;
    return product + total;
}

/* Probabilities of the components given what the row holds, of which those that matter are kept; and the scores. */
APART static void look(thrifty_session *session)
{
    double *weight = session->weight, total = 0.0, scale;
    volatile double product; /* in memory, so that no compiler fuses it into a sum */
#if THRIFTY_N_SCORES == 1
    double score[2];
#else
    double *score = session->score;
#endif
    uint32_t at;
    unsigned k;
    for (k = 0; k < N_COMPONENTS; k++)
        COPY(weight[k], component_share[k]);
    for (at = node_starts[session->node]; at < node_starts[session->node + 1u]; at++) {
        IN_TABLE float *chance = &chances[N_COMPONENTS * (chance_starts[held[at]] + session->level[held[at]])];
        for (k = 0; k < N_COMPONENTS; k++)
            weight[k] *= (double)chance[k];
    }
    for (k = 0; k < N_COMPONENTS; k++) {
        product = weight[k];
        total += product;
    }
    scale = total > 0.0 ? 1.0 / total : 0.0;
    for (k = 0; k < N_CLASSES; k++)
        COPY(score[k], least_chance[k]);
    session->n_near = 0;
    for (k = 0; k < N_COMPONENTS; k++) {
        product = weight[k] * scale;
        score[component_class[k]] += product;
        if (product > @NEGLIGIBLE@) {
            session->near[session->n_near] = (uint16_t)k;
            weight[session->n_near++] = product;
        }
    }
    for (k = 0; k < N_CLASSES; k++)
        score[k] = log_of(score[k]);
#if THRIFTY_N_SCORES == 1
    session->score[0] = score[1] - score[0];
#endif
}

/* Sum of the squared probabilities of groups over their sum, if a further column has a level; or as they are. */
static double impurity_kept(const thrifty_session *session, IN_TABLE float *chance)
{
    double total = 0.0, squares = 0.0, mass = 0.0;
    volatile double product;
    unsigned i, group = N_COMPONENTS;
    for (i = 0; i < session->n_near; i++) {
        const unsigned k = session->near[i];
        if (component_group[k] != group) {
            product = mass * mass;
            squares += product;
            total += mass;
            mass = 0.0;
            group = component_group[k];
        }
        product = chance ? session->weight[i] * (double)chance[k] : session->weight[i];
        mass += product;
    }
    product = mass * mass;
    squares += product;
    total += mass;
    return total > 0.0 ? squares / total : 0.0;
}

/* Node that a row goes on to: the one whose best column lowers the impurity most for its price. */
APART static uint16_t next_node(const thrifty_session *session)
{
    const uint32_t first = choice_starts[session->node], end = choice_starts[session->node + 1u];
    const double now = impurity_kept(session, 0);
    double most = -1.0;
    uint32_t choice, best = first, at;
    for (choice = first; end - first > 1u && choice < end; choice++) {
        double gain = 0.0;
        for (at = tell_starts[choice]; at < tell_starts[choice + 1u]; at++) {
            const unsigned place = tells[at], n_levels_there = (unsigned)(end_starts[place + 1u] - end_starts[place] + 2u);
            double after = 0.0;
            unsigned level;
            for (level = 0; level < n_levels_there; level++)
                after += impurity_kept(session, &chances[N_COMPONENTS * (chance_starts[place] + level)]);
            if (after - now > gain)
                gain = after - now;
        }
        if (gain / choice_prices[choice] > most) {
            most = gain / choice_prices[choice];
            best = choice;
        }
    }
    return choice_nodes[best];
}

/* Gate of the node whose columns the row holds: that of the mixture or, behind the last choice, of trees. */
static double visit_node(thrifty_session *session, const thrifty_code *codes)
{
    session->visited = (uint16_t)(session->node + 1u);
    if (session->stage >= N_MIXED)
        return visit(session, codes);
    look(session);
    return uncertainty(session, session->stage);
}

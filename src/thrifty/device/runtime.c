/* @BANNER@ */
#include "thrifty_model.h"

typedef struct {
    uint16_t column;
    uint16_t n_levels; /* 0: a number */
    uint32_t first_cut;
} thrifty_column;

typedef struct {
    uint32_t trees, gate;     /* first slots */
    uint32_t numbers;         /* shifts of the scores, starts of the sums, start of the gate */
    uint32_t score_cuts;      /* first of THRIFTY_N_SCORES + 1 places in score_starts */
    uint16_t n_trees, n_gate; /* trees */
    uint16_t n_held;          /* columns of the order of purchase */
    uint8_t carries, gate_first;
    double slope, margin;
    double unit, gate_unit; /* of a leaf of 16 bits */
} thrifty_stage;

typedef struct {
    uint16_t lower, upper; /* rows of thresholds */
    uint64_t seed;
    uint64_t limit; /* keys whose chance is below it follow the upper row */
} thrifty_point;

@TABLES@

#define N_ORDER @N_ORDER@
/* Sums that are added up in one pass: more take more stack. */
#define N_OUTPUTS (THRIFTY_N_SCORES < 8 ? THRIFTY_N_SCORES + 1 : 8)

/* Floats as whole numbers in the same order; both zeros are 0. */
static int32_t ordered(float value)
{
    union {
        float number;
        uint32_t bits;
    } both;
    int32_t size;
    both.number = value;
    size = (int32_t)(both.bits & 0x7fffffffu);
    return (both.bits >> 31) ? -size : size;
}

static double leaf_value(const uint16_t *leaf, unsigned k, double unit)
{
#if THRIFTY_LEAF_BITS == 16
    return (double)(int16_t)leaf[k] * unit;
#else
    union {
        float number;
        uint32_t bits;
    } both;
    (void)unit;
    both.bits = (uint32_t)leaf[2 * k] | ((uint32_t)leaf[2 * k + 1] << 16);
    return (double)both.number;
#endif
}

/* Leaf that a row reaches from the root of a tree. */
static const uint16_t *leaf_of(const uint16_t *node, const thrifty_code *codes)
{
    for (;;) {
#if THRIFTY_WIDE
        const unsigned column = node[0], cut = node[1], missing_left = node[3] & 0x2000u;
        const uint32_t right = node[2] | ((uint32_t)(node[3] & 0x1fffu) << 16);
        const unsigned leaves = node[3] >> 14, size = 4;
#else
        const unsigned column = node[0] & 0x7fu, cut = node[0] >> 8, missing_left = node[0] & 0x80u;
        const unsigned right = node[1] & 0x3fffu, leaves = node[1] >> 14, size = 2;
#endif
        const unsigned code = codes[column];
        unsigned left, set = 0;
#if THRIFTY_HAS_SETS
        set = cut == THRIFTY_MISSING;
#endif
        if (code == THRIFTY_MISSING)
            left = missing_left;
#if THRIFTY_HAS_SETS
        else if (set)
            left = (unsigned)(sets[set_starts[node[size]] + (code >> 3)] >> (code & 7u)) & 1u;
#endif
        else
            left = code <= cut;
        if (left) {
            node += size + set;
            if (leaves & 2u)
                return node;
        } else {
            node += right;
            if (leaves & 1u)
                return node;
        }
    }
}

/* Add values first, first + 1, ... of the leaves of some trees to as many sums. */
static void add_trees(const uint16_t *tree, unsigned n_trees, unsigned n_outputs, unsigned first, unsigned n_sums,
                      double unit, const thrifty_code *codes, double *sums)
{
    unsigned k;
    for (; n_trees; n_trees--) {
#if THRIFTY_WIDE
        const uint32_t size = tree[0] | ((uint32_t)tree[1] << 16);
        tree += 2;
#else
        const uint32_t size = tree[0];
        tree += 1;
#endif
        /* a tree that is as large as a leaf is one */
        {
            const uint16_t *leaf = size == n_outputs * (THRIFTY_LEAF_BITS / 16) ? tree : leaf_of(tree, codes);
            for (k = 0; k < n_sums; k++)
                sums[k] += leaf_value(leaf, first + k, unit);
        }
        tree += size;
    }
}

static double score_at(const thrifty_session *session, unsigned stage, unsigned k)
{
    /* In memory, so that no compiler fuses the product into the sum. */
    volatile double product = session->score[k] * stages[stage].slope;
    return product + numbers[stages[stage].numbers + k];
}

/* Minus the margin between the two best classes; 0 for a number. */
static double uncertainty(const thrifty_session *session, unsigned stage)
{
#if THRIFTY_IS_NUMBER
    (void)session;
    (void)stage;
    return 0.0;
#elif THRIFTY_N_SCORES == 1
    const double score = score_at(session, stage, 0);
    return score > 0.0 ? -score : score;
#else
    double best = score_at(session, stage, 0), second = score_at(session, stage, 1);
    unsigned k;
    if (second > best) {
        const double other = best;
        best = second;
        second = other;
    }
    for (k = 2; k < THRIFTY_N_SCORES; k++) {
        const double score = score_at(session, stage, k);
        if (score > best) {
            second = best;
            best = score;
        } else if (score > second) {
            second = score;
        }
    }
    return -(best - second);
#endif
}

/* Scores and gate of the stage whose columns the row holds. */
static double visit(thrifty_session *session)
{
    const thrifty_stage *stage = &stages[session->stage];
    const unsigned n_outputs = THRIFTY_N_SCORES + stage->gate_first;
    const double *start = &numbers[stage->numbers + THRIFTY_N_SCORES];
    double gate = 0.0;
    unsigned first, k;
    for (first = 0; first < n_outputs; first += N_OUTPUTS) {
        double sums[N_OUTPUTS] = {0.0};
        const unsigned n_sums = n_outputs - first < N_OUTPUTS ? n_outputs - first : N_OUTPUTS;
        add_trees(&slots[stage->trees], stage->n_trees, n_outputs, first, n_sums, stage->unit, session->code, sums);
        for (k = 0; k < n_sums; k++) {
            const unsigned output = first + k;
            if (stage->gate_first && output == 0)
                gate = start[0] + sums[0];
            else if (stage->carries)
                session->score[output - stage->gate_first] += sums[k];
            else
                session->score[output - stage->gate_first] = start[output] + sums[k];
        }
    }
#if THRIFTY_HAS_GATES
    if (stage->n_gate) {
        double sum[1] = {0.0};
        for (k = 0; k < THRIFTY_N_SCORES; k++) {
            const double score = score_at(session, session->stage, k);
            uint32_t low = score_starts[stage->score_cuts + k], high = score_starts[stage->score_cuts + k + 1];
            const uint32_t begin = low;
            while (low < high) {
                const uint32_t middle = low + (high - low) / 2;
                if (score_cuts[middle] < score)
                    low = middle + 1;
                else
                    high = middle;
            }
            session->code[N_ORDER + k] = (thrifty_code)(low - begin);
        }
        add_trees(&slots[stage->gate], stage->n_gate, 1, 0, 1, stage->gate_unit, session->code, sum);
        gate = start[stage->carries ? 0 : n_outputs] + sum[0];
    }
#endif
    if (stage->margin < 0.0 || stage->margin > 0.0) {
        volatile double weighted = stage->margin * uncertainty(session, session->stage);
        gate -= weighted;
    }
    return gate;
}

/* Visit every stage whose columns the row holds, until one keeps it. */
static void advance(thrifty_session *session)
{
    const thrifty_point *point = &points[session->point];
    const double *limits = &thresholds[THRIFTY_N_STAGES * (uint32_t)(session->upper ? point->upper : point->lower)];
    while (session->stage < THRIFTY_N_STAGES && session->n_held >= stages[session->stage].n_held) {
        const double gate = visit(session);
        if (!(gate > limits[session->stage])) {
            session->status = THRIFTY_DONE;
            return;
        }
        session->stage++;
    }
    session->status = session->stage < THRIFTY_N_STAGES ? 0 : THRIFTY_ASK_SERVER;
}

static uint64_t mix(uint64_t word)
{
    word ^= word >> 30;
    word *= UINT64_C(0xbf58476d1ce4e5b9);
    word ^= word >> 27;
    word *= UINT64_C(0x94d049bb133111eb);
    word ^= word >> 31;
    return word;
}

void thrifty_start_at(thrifty_session *session, uint64_t key, int point)
{
    unsigned k;
    for (k = 0; k < THRIFTY_N_SCORES; k++)
        session->score[k] = base[k];
    for (k = 0; k < N_ORDER + THRIFTY_N_SCORES; k++)
        session->code[k] = THRIFTY_MISSING;
    session->n_held = 0;
    session->stage = 0;
    session->point = (uint16_t)(point < 0 || point >= THRIFTY_N_POINTS ? 0 : point);
    session->upper = (mix(mix(key + 1u) + points[session->point].seed) >> 11) < points[session->point].limit;
    advance(session);
}

void thrifty_start(thrifty_session *session, uint64_t key)
{
    thrifty_start_at(session, key, 0);
}

int thrifty_next(const thrifty_session *session)
{
    return session->status ? session->status : (int)columns[session->n_held].column;
}

static int give_code(thrifty_session *session, thrifty_code code)
{
    if (session->status)
        return THRIFTY_REFUSED;
    session->code[session->n_held++] = code;
    advance(session);
    return 0;
}

int thrifty_give_missing(thrifty_session *session)
{
    return give_code(session, THRIFTY_MISSING);
}

int thrifty_give(thrifty_session *session, float value)
{
    const int32_t number = ordered(value);
    const thrifty_column *column = &columns[session->n_held];
    uint32_t low, high;
    if (session->status || number == 0x7f800000 || number == -0x7f800000)
        return THRIFTY_REFUSED;
    if (number > 0x7f800000 || number < -0x7f800000)
        return thrifty_give_missing(session);
#if THRIFTY_HAS_LEVELS
    if (column->n_levels) {
        if (!(value >= 0.0f && value < (float)column->n_levels))
            return thrifty_give_missing(session);
        return give_code(session, (thrifty_code)value);
    }
#endif
    low = column->first_cut;
    high = (column + 1)->first_cut;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (cuts[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return give_code(session, (thrifty_code)(low - column->first_cut));
}

int thrifty_route(const thrifty_session *session)
{
    return session->status == THRIFTY_DONE ? (int)session->stage : (int)session->stage - 1;
}

double thrifty_score(const thrifty_session *session, int k)
{
    const int stage = thrifty_route(session);
    double score = k < 0 || k >= THRIFTY_N_SCORES ? 0.0 : session->score[k];
    if (stage >= 0 && k >= 0 && k < THRIFTY_N_SCORES)
        score = score_at(session, (unsigned)stage, (unsigned)k);
#if THRIFTY_IS_NUMBER
    {
        volatile double scaled = score * @SPREAD@;
        score = scaled + @CENTRE@;
    }
#endif
    return score;
}

int thrifty_label(const thrifty_session *session)
{
#if THRIFTY_IS_NUMBER
    (void)session;
    return -1;
#else
    const int stage = thrifty_route(session);
    if (stage < 0)
        return -1;
#if THRIFTY_N_SCORES == 1
    return score_at(session, (unsigned)stage, 0) > 0.0;
#else
    {
        double best = score_at(session, (unsigned)stage, 0);
        int label = 0, k;
        for (k = 1; k < THRIFTY_N_SCORES; k++) {
            const double score = score_at(session, (unsigned)stage, (unsigned)k);
            if (score > best) {
                best = score;
                label = k;
            }
        }
        return label;
    }
#endif
#endif
}

float thrifty_cost(const thrifty_session *session)
{
    return costs[session->n_held];
}

#ifdef THRIFTY_SELF_TEST
int thrifty_self_test(void)
{
    thrifty_session session;
    int failures = 0;
    unsigned row;
    for (row = 0; row < N_TEST_ROWS; row++) {
        const thrifty_test_row *one = &test_rows[row];
        int column;
        thrifty_start(&session, one->key);
        while ((column = thrifty_next(&session)) >= 0) {
            if (one->missing[column])
                thrifty_give_missing(&session);
            else
                thrifty_give(&session, one->values[column]);
        }
        failures += column != one->end || session.n_held != one->n_held || thrifty_label(&session) != one->label;
    }
    return failures;
}
#endif

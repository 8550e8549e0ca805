/* @BANNER@ */
#include <float.h>

#include "thrifty_model.h"

/* AVR reads constants from flash by instructions of their own. */
#ifdef __AVR__
#define TABLE static const __flash
#define IN_TABLE const __flash
#else
#define TABLE static const
#define IN_TABLE const
#endif

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
    uint8_t carries;          /* sums go on from the scores of the stage before */
    uint8_t gate_first;       /* the first sum is the gate */
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
/* Sums that are added up in one pass over the trees: more take more stack. */
#define MOST_SUMS (128 / THRIFTY_LEAF_BITS)
#define N_SUMS (THRIFTY_N_SCORES < MOST_SUMS ? THRIFTY_N_SCORES + 1 : MOST_SUMS)

#if THRIFTY_LEAF_BITS == 16
typedef int32_t leaf_sum; /* exact: 65,535 leaves of 16 bits fit */
#define IN_UNITS(sum, unit) ((double)(sum) * (unit))
#else
typedef double leaf_sum;
#define IN_UNITS(sum, unit) (sum)
#endif

static leaf_sum leaf_value(IN_TABLE uint16_t *leaf, unsigned k)
{
#if THRIFTY_LEAF_BITS == 16
    return (int16_t)leaf[k];
#else
    union {
        float number;
        uint32_t bits;
    } both;
    both.bits = (uint32_t)leaf[2 * k] | ((uint32_t)leaf[2 * k + 1] << 16);
    return (double)both.number;
#endif
}

/* Leaf that a row reaches from the root of a tree. A column has two codes that differ where it is missing: the first is
 * larger than every cut, the second the smallest. A node names the one that goes its way. */
static IN_TABLE uint16_t *leaf_of(IN_TABLE uint16_t *node, const thrifty_code *codes)
{
    for (;;) {
        int left;
#if THRIFTY_WIDE
        const unsigned place = node[0], cut = node[1], leaves = node[3];
        const unsigned size = 4;
#else
        const unsigned place = node[0] & 0xffu, cut = node[0] >> 8, leaves = node[1];
        const unsigned size = 2;
#endif
#if THRIFTY_HAS_SETS
        const unsigned set = cut == THRIFTY_MISSING;
        if (set) {
            const unsigned level = codes[place & ~1u];
            if (level == THRIFTY_MISSING)
                left = (int)(place & 1u);
            else
                left = (sets[set_starts[node[size]] + (level >> 3)] >> (level & 7u)) & 1;
        } else
#else
        const unsigned set = 0;
#endif
            left = codes[place] <= cut;
        if (left) {
            node += size + set;
            if (leaves & 0x8000u)
                return node;
        } else {
#if THRIFTY_WIDE
            node += node[2] | ((uint32_t)(leaves & 0x3fffu) << 16);
#else
            node += leaves & 0x3fffu;
#endif
            if (leaves & 0x4000u)
                return node;
        }
    }
}

/* Add values first, first + 1, ... of the leaves of some trees to as many sums. */
static void add_trees(IN_TABLE uint16_t *tree, unsigned n_trees, unsigned n_outputs, unsigned first, unsigned n_sums,
                      const thrifty_code *codes, leaf_sum *sums)
{
    const unsigned leaf_size = n_outputs * (THRIFTY_LEAF_BITS / 16);
    for (; n_trees; n_trees--) {
        IN_TABLE uint16_t *leaf;
        unsigned k;
#if THRIFTY_WIDE
        const uint32_t size = tree[0] | ((uint32_t)tree[1] << 16);
        tree += 2;
#else
        const unsigned size = tree[0];
        tree += 1;
#endif
        /* a tree that is as large as a leaf is one */
        leaf = size == leaf_size ? tree : leaf_of(tree, codes);
        for (k = 0; k < n_sums; k++)
            sums[k] += leaf_value(leaf, first + k);
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
    IN_TABLE thrifty_stage *stage = &stages[session->stage];
    const unsigned gate_first = stage->gate_first, n_outputs = THRIFTY_N_SCORES + gate_first;
    IN_TABLE double *start = &numbers[stage->numbers + THRIFTY_N_SCORES];
    double gate = 0.0;
    unsigned first, k;
    for (first = 0; first < n_outputs; first += N_SUMS) {
        leaf_sum sums[N_SUMS] = {0};
        const unsigned n_sums = n_outputs - first < N_SUMS ? n_outputs - first : N_SUMS;
        add_trees(&slots[stage->trees], stage->n_trees, n_outputs, first, n_sums, session->code, sums);
        for (k = 0; k < n_sums; k++) {
            const unsigned output = first + k;
            const double sum = IN_UNITS(sums[k], stage->unit);
            if (gate_first && output == 0)
                gate = start[0] + sum;
            else if (stage->carries)
                session->score[output - gate_first] += sum;
            else
                session->score[output - gate_first] = start[output] + sum;
        }
    }
#if THRIFTY_HAS_GATES
    if (stage->n_gate) {
        leaf_sum sum[1] = {0};
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
            session->code[2 * N_ORDER + k] = (thrifty_code)(low - begin);
        }
        add_trees(&slots[stage->gate], stage->n_gate, 1, 0, 1, session->code, sum);
        gate = start[stage->carries ? 0 : n_outputs] + IN_UNITS(sum[0], stage->gate_unit);
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
    IN_TABLE thrifty_point *point = &points[session->point];
    IN_TABLE double *limits = &thresholds[THRIFTY_N_STAGES * (uint32_t)(session->upper ? point->upper : point->lower)];
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

/* Hold the codes of the column that was asked for, and go on. */
static int give_codes(thrifty_session *session, unsigned code, unsigned or_first)
{
    thrifty_code *place = &session->code[2u * session->n_held++];
    place[0] = (thrifty_code)code;
    place[1] = (thrifty_code)or_first;
    if (session->n_held >= stages[session->stage].n_held)
        advance(session);
    return 0;
}

int thrifty_give_missing(thrifty_session *session)
{
    return session->status ? THRIFTY_REFUSED : give_codes(session, THRIFTY_MISSING, 0);
}

int thrifty_give(thrifty_session *session, float value)
{
    /* Floats as whole numbers in the same order; both zeros are 0. */
    union {
        float value;
        uint32_t bits;
    } given;
    IN_TABLE thrifty_column *column = &columns[session->n_held];
    IN_TABLE int32_t *low, *begin;
    int32_t number;
    uint32_t n_cuts;
    unsigned code;
    given.value = value;
    number = (int32_t)(given.bits & 0x7fffffffu);
    if (session->status || number == 0x7f800000)
        return THRIFTY_REFUSED;
    if (number > 0x7f800000)
        return thrifty_give_missing(session);
#if THRIFTY_HAS_LEVELS
    if (column->n_levels) {
        if (!(value >= 0.0f && value < (float)column->n_levels))
            return thrifty_give_missing(session);
        code = (unsigned)value;
        return give_codes(session, code, code);
    }
#endif
    if (given.bits >> 31)
        number = -number;
    begin = low = &cuts[column->first_cut];
    n_cuts = column[1].first_cut - column->first_cut;
    while (n_cuts) {
        const uint32_t half = n_cuts / 2;
        if (low[half] < number) {
            low += half + 1;
            n_cuts -= half + 1;
        } else {
            n_cuts = half;
        }
    }
    code = (unsigned)(low - begin);
    return give_codes(session, code, code);
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
        IN_TABLE thrifty_test_row *one = &test_rows[row];
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

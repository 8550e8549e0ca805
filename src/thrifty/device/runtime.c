/* @BANNER@ */
#include <float.h>

#include "thrifty_model.h"

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "compile thrifty_model.c without -ffast-math: it drops tests for missing values"
#endif

/* AVR reads constants from flash by instructions of their own. */
#ifdef __AVR__
#define TABLE static const __flash
#define IN_TABLE const __flash
#else
#define TABLE static const
#define IN_TABLE const
#endif

@FLAGS@

typedef struct {
    double margin; /* weight of the uncertainty, where by_margin is 2 */
#if THRIFTY_HAS_CALIBRATION
    double slope;
#endif
#if THRIFTY_LEAF_BITS == 16 && THRIFTY_HAS_GATES
    double gate_unit; /* of a leaf of the gate */
#endif
    uint32_t trees;   /* first slot, or first function */
    uint32_t numbers; /* shifts of the scores, where calibrated; start of the gate */
#if THRIFTY_RESTARTS
    uint32_t starts; /* what sums start from, unless they are carried on */
#endif
#if THRIFTY_HAS_GATES
    uint32_t gate;       /* first slot, or first function */
    uint32_t score_cuts; /* first of THRIFTY_N_SCORES + 1 places in score_starts */
    uint16_t n_gate;     /* trees */
#endif
    uint16_t n_trees;
    uint16_t n_held;    /* columns of the order of purchase */
    uint16_t scale;     /* units of a leaf of 16 bits */
#if THRIFTY_RESTARTS
    uint8_t carries; /* sums go on from the scores of the stage before */
#endif
    uint8_t gate_first; /* the first sum is the gate */
    uint8_t by_margin;  /* 1: the uncertainty is the gate; 2: it is a part of it */
} thrifty_stage;

typedef struct {
    uint16_t lower, upper; /* rows of thresholds */
#if THRIFTY_IS_MIXED
    uint64_t seed;
    uint64_t limit; /* keys whose chance is below it follow the upper row */
#endif
} thrifty_point;

@TABLES@

#define N_ORDER @N_ORDER@
/* Place of the codes of scores, behind those of columns. */
#define SCORE_CODES (THRIFTY_IS_CODE ? THRIFTY_N_COLUMNS : 2 * N_ORDER)
/* Scores stand behind the gate where leaves have both. */
#define FIRST_SCORE THRIFTY_GATE_IN_LEAVES

/* One by one, so that no compiler calls memcpy or memset, which a target without a C library lacks. */
#define COPY(to, from) (*(volatile thrifty_sum *)&(to) = (from))

#if THRIFTY_LEAF_BITS == 16
/* Sums are whole numbers of units, which none of them exceeds 2^30 of. */
#define NUMBER(sum) ((double)(sum) * @UNIT@)
typedef int32_t leaf_value;
#else
#define NUMBER(sum) (sum)
typedef double leaf_value;
/* Sums that are added up in one pass over the trees: more take more stack. */
#define MOST_SUMS 4
#endif

#if !THRIFTY_LEAF_IN_CODE
static leaf_value value_of(IN_TABLE uint16_t *leaf, unsigned k)
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
#endif

#if THRIFTY_HAS_SETS
static int in_set(thrifty_code code, unsigned set, unsigned missing_left)
{
    const unsigned level = (unsigned)(IS_MISSING(code) ? 0 : code);
    if (IS_MISSING(code))
        return (int)missing_left;
    return (sets[set_starts[set] + (uint32_t)(level >> 3)] >> (level & 7)) & 1;
}
#endif

#if THRIFTY_IS_CODE
/* A threshold is written as a whole number and as a float: a processor compares what it can. */
#if THRIFTY_COMPARES_FLOATS
#define AT_MOST(value, number, limit) ((value) <= (limit))
#define AT_MOST_OR_MISSING(value, number, limit) (!((value) > (limit)))
#else
/* A missing value is the largest whole number: one more is the smallest. */
#define AT_MOST(value, number, limit) ((value) <= (number))
#define AT_MOST_OR_MISSING(value, number, limit) ((int32_t)((uint32_t)(value) + 1u) <= (number) + 1)
#endif

@TREES@
#else
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
        if (set)
            left = in_set(codes[place & ~1u], node[size], place & 1u);
        else
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
#endif

/* Add values first, first + 1, ... of the leaves of some trees, times a scale, to as many sums. */
static void add_trees(uint32_t first_tree, unsigned n_trees, unsigned n_outputs, unsigned first, unsigned n_sums,
                      int32_t scale, const thrifty_code *codes, thrifty_sum *sums)
{
#if THRIFTY_IS_CODE
    IN_TABLE thrifty_tree *tree = &trees[first_tree];
    (void)n_outputs;
#else
    const unsigned leaf_size = n_outputs * (THRIFTY_LEAF_BITS / 16);
    IN_TABLE uint16_t *tree = &slots[first_tree];
#endif
    (void)scale;
    for (; n_trees; n_trees--) {
#if THRIFTY_LEAF_IN_CODE
        (void)first;
        (void)n_sums;
        sums[0] += (*tree++)(codes) * scale;
#else
        IN_TABLE uint16_t *leaf;
        unsigned k;
#if THRIFTY_IS_CODE
        leaf = &slots[(*tree++)(codes)];
#else
#if THRIFTY_WIDE
        const uint32_t size = tree[0] | ((uint32_t)tree[1] << 16);
        tree += 2;
#else
        const unsigned size = tree[0];
        tree += 1;
#endif
        /* a tree that is as large as a leaf is one */
        leaf = size == leaf_size ? tree : leaf_of(tree, codes);
        tree += size;
#endif
        for (k = 0; k < n_sums; k++)
#if THRIFTY_LEAF_BITS == 16
            sums[k] += value_of(leaf, first + k) * scale;
#else
            sums[k] += value_of(leaf, first + k);
#endif
#endif
    }
}

/* Score of class k at a stage: calibrated, and in double precision; or its sum. */
#if THRIFTY_HAS_CALIBRATION
typedef double thrifty_value;
#define VALUE_NUMBER(value) (value)
static thrifty_value value_at(const thrifty_session *session, unsigned stage, unsigned k)
{
    /* In memory, so that no compiler fuses the product into the sum. */
    volatile double product = NUMBER(session->score[FIRST_SCORE + k]) * stages[stage].slope;
    return product + numbers[stages[stage].numbers + k];
}
#else
typedef thrifty_sum thrifty_value;
#define VALUE_NUMBER(value) NUMBER(value)
static thrifty_value value_at(const thrifty_session *session, unsigned stage, unsigned k)
{
    (void)stage;
    return session->score[FIRST_SCORE + k];
}
#endif

/* Minus the margin between the two best classes; 0 for a number. */
static double uncertainty(const thrifty_session *session, unsigned stage)
{
#if THRIFTY_IS_NUMBER
    (void)session;
    (void)stage;
    return 0.0;
#elif THRIFTY_N_SCORES == 1
    const thrifty_value score = value_at(session, stage, 0);
    return VALUE_NUMBER(score > 0 ? -score : score);
#else
    thrifty_value best = value_at(session, stage, 0), second = value_at(session, stage, 1);
    unsigned k;
    if (second > best) {
        const thrifty_value other = best;
        best = second;
        second = other;
    }
    for (k = 2; k < THRIFTY_N_SCORES; k++) {
        const thrifty_value score = value_at(session, stage, k);
        if (score > best) {
            second = best;
            best = score;
        } else if (score > second) {
            second = score;
        }
    }
    return VALUE_NUMBER(second - best);
#endif
}

/* Scores and gate of the stage whose columns the row holds. */
static double visit(thrifty_session *session, const thrifty_code *codes)
{
    IN_TABLE thrifty_stage *stage = &stages[session->stage];
    const unsigned n_sums = THRIFTY_N_SCORES + (unsigned)stage->gate_first;
    thrifty_sum *sums = &session->score[FIRST_SCORE - stage->gate_first];
    double gate = 0.0;
#if THRIFTY_RESTARTS || THRIFTY_HAS_GATES || THRIFTY_LEAF_BITS != 16
    unsigned k;
#endif
#if THRIFTY_RESTARTS
    if (!stage->carries)
        for (k = 0; k < n_sums; k++)
            COPY(sums[k], starts[stage->starts + k]);
#endif
#if THRIFTY_LEAF_BITS == 16
    add_trees(stage->trees, stage->n_trees, n_sums, 0, n_sums, stage->scale, codes, sums);
#else
    unsigned first;
    for (first = 0; first < n_sums; first += MOST_SUMS) {
        double part[MOST_SUMS];
        const unsigned n_parts = n_sums - first < MOST_SUMS ? n_sums - first : MOST_SUMS;
        for (k = 0; k < n_parts; k++)
            COPY(part[k], 0.0);
        add_trees(stage->trees, stage->n_trees, n_sums, first, n_parts, 1, codes, part);
        for (k = 0; k < n_parts; k++)
            sums[first + k] += part[k];
    }
#endif
#if THRIFTY_GATE_IN_LEAVES
    if (stage->gate_first)
        gate = NUMBER(sums[0]);
#endif
#if THRIFTY_HAS_GATES
    if (stage->n_gate) {
        thrifty_sum sum = 0;
        for (k = 0; k < THRIFTY_N_SCORES; k++) {
            const double score = VALUE_NUMBER(value_at(session, session->stage, k));
            uint32_t low = score_starts[stage->score_cuts + k], high = score_starts[stage->score_cuts + k + 1];
            const uint32_t begin = low;
            while (low < high) {
                const uint32_t middle = low + (high - low) / 2;
                if (score_cuts[middle] < score)
                    low = middle + 1;
                else
                    high = middle;
            }
            session->code[SCORE_CODES + k] = (thrifty_code)(low - begin);
        }
        add_trees(stage->gate, stage->n_gate, 1, 0, 1, 1, codes, &sum);
        gate = numbers[stage->numbers + THRIFTY_HAS_CALIBRATION * THRIFTY_N_SCORES];
#if THRIFTY_LEAF_BITS == 16
        gate += (double)sum * stage->gate_unit;
#else
        gate += sum;
#endif
    }
#endif
    if (stage->by_margin == 1) {
        gate = uncertainty(session, session->stage);
    } else if (stage->by_margin) {
        volatile double weighted = stage->margin * uncertainty(session, session->stage);
        gate -= weighted;
    }
    return gate;
}

/* Visit every stage whose columns the row holds, until one keeps it. */
static void advance(thrifty_session *session, const thrifty_code *codes)
{
    IN_TABLE thrifty_point *point = &points[session->point];
    IN_TABLE double *limits = &thresholds[THRIFTY_N_STAGES * (uint32_t)(session->upper ? point->upper : point->lower)];
    while (session->stage < THRIFTY_N_STAGES && session->n_held >= stages[session->stage].n_held) {
        const double gate = visit(session, codes);
        if (!(gate > limits[session->stage])) {
            session->status = THRIFTY_DONE;
            return;
        }
        session->stage++;
    }
    session->status = session->stage < THRIFTY_N_STAGES ? 0 : THRIFTY_ASK_SERVER;
}

#if THRIFTY_IS_MIXED
static uint64_t mix(uint64_t word)
{
    word ^= word >> 30;
    word *= UINT64_C(0xbf58476d1ce4e5b9);
    word ^= word >> 27;
    word *= UINT64_C(0x94d049bb133111eb);
    word ^= word >> 31;
    return word;
}
#endif

void thrifty_start_at(thrifty_session *session, uint64_t key, int point)
{
    unsigned k;
    for (k = 0; k < FIRST_SCORE + THRIFTY_N_SCORES; k++)
        COPY(session->score[k], base[k]);
    session->n_held = 0;
    session->stage = 0;
    session->point = (uint16_t)(point < 0 || point >= THRIFTY_N_POINTS ? 0 : point);
#if THRIFTY_IS_MIXED
    session->upper = (mix(mix(key + 1u) + points[session->point].seed) >> 11) < points[session->point].limit;
#else
    (void)key;
    session->upper = 0;
#endif
    advance(session, session->code);
}

void thrifty_start(thrifty_session *session, uint64_t key)
{
    thrifty_start_at(session, key, 0);
}

int thrifty_next(const thrifty_session *session)
{
    return session->status ? session->status : (int)order[session->n_held];
}

/* Hold the next column, a float of some bits; infinities are larger or smaller than every other number. */
static void hold(thrifty_session *session, unsigned held, uint32_t bits)
{
#if THRIFTY_IS_CODE
    thrifty_code *place = &session->code[order[held]];
#else
    thrifty_code *place = &session->code[2 * held];
#endif
#if !THRIFTY_COMPARES_FLOATS
    /* Floats as whole numbers in the same order; both zeros are 0. */
    int32_t number = (int32_t)(bits & 0x7fffffffu);
#endif
#if THRIFTY_HAS_LEVELS || THRIFTY_COMPARES_FLOATS
    union {
        uint32_t bits;
        float value;
    } given;
    given.bits = bits;
#endif
    place[0] = THRIFTY_MISSING;
#if !THRIFTY_IS_CODE
    place[1] = 0;
#endif
#if THRIFTY_HAS_LEVELS
    if (n_levels[held]) {
        if (given.value >= 0.0f && given.value < (float)n_levels[held]) {
            place[0] = (thrifty_code)(unsigned)given.value;
            place[1 - THRIFTY_IS_CODE] = place[0];
        }
        return;
    }
#endif
#if THRIFTY_COMPARES_FLOATS
    place[0] = given.value;
#else
    if (number > 0x7f800000)
        return;
    if (bits >> 31)
        number = -number;
#if THRIFTY_IS_CODE
    place[0] = number;
#else
    {
        uint32_t low = first_cut[held], high = first_cut[held + 1u];
        const uint32_t begin = low;
#if THRIFTY_SHORT_CUTS
        number = (number + 0xffff) >> 16; /* cuts are multiples of 65,536 */
#endif
        while (high - low > 8) {
            const uint32_t middle = (low + high) / 2;
            if (cuts[middle] < number)
                low = middle + 1;
            else
                high = middle;
        }
        while (low < high && cuts[low] < number)
            low++;
        place[0] = place[1] = (thrifty_code)(low - begin);
    }
#endif
#endif
}

static int take(thrifty_session *session, uint32_t bits)
{
    if (session->status || (bits & 0x7fffffffu) == 0x7f800000u)
        return THRIFTY_REFUSED;
    hold(session, session->n_held, bits);
    session->n_held++;
    if (session->n_held >= stages[session->stage].n_held)
        advance(session, session->code);
    return 0;
}

int thrifty_walk(thrifty_session *session, uint64_t key, const float *row)
{
    thrifty_start(session, key);
    while (!session->status) {
        const unsigned end = stages[session->stage].n_held;
#if THRIFTY_COMPARES_FLOATS && !THRIFTY_HAS_GATES && !THRIFTY_HAS_LEVELS
        const thrifty_code *codes = row; /* trees read the row itself */
#else
        const thrifty_code *codes = session->code;
        union {
            float value;
            uint32_t bits;
        } given;
        unsigned held;
        for (held = session->n_held; held < end; held++) {
            given.value = row[order[held]];
            hold(session, held, given.bits);
        }
#endif
        session->n_held = (uint16_t)end;
        advance(session, codes);
    }
    return session->status;
}

int thrifty_give_missing(thrifty_session *session)
{
    return take(session, 0x7fc00000u);
}

int thrifty_give(thrifty_session *session, float value)
{
    union {
        float value;
        uint32_t bits;
    } given;
    given.value = value;
    return take(session, given.bits);
}

int thrifty_route(const thrifty_session *session)
{
    return session->status == THRIFTY_DONE ? (int)session->stage : (int)session->stage - 1;
}

double thrifty_score(const thrifty_session *session, int k)
{
    const int stage = thrifty_route(session);
    double score = 0.0;
    if (k >= 0 && k < THRIFTY_N_SCORES)
        score = stage < 0 ? NUMBER(session->score[FIRST_SCORE + k])
                          : VALUE_NUMBER(value_at(session, (unsigned)stage, (unsigned)k));
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
    return value_at(session, (unsigned)stage, 0) > 0;
#else
    {
        thrifty_value best = value_at(session, (unsigned)stage, 0);
        int label = 0, k;
        for (k = 1; k < THRIFTY_N_SCORES; k++) {
            const thrifty_value score = value_at(session, (unsigned)stage, (unsigned)k);
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
#if THRIFTY_EVEN_COSTS
    return @PRICE@ * (float)session->n_held;
#else
    return costs[session->n_held];
#endif
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

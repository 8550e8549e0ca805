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

#if THRIFTY_COMPARES_FLOATS
#define THRIFTY_MISSING __builtin_nanf("")
#define IS_MISSING(code) ((code) != (code))
#elif THRIFTY_LOOKS_UP
#define THRIFTY_MISSING ((thrifty_code)-1)
#define IS_MISSING(code) ((code) == THRIFTY_MISSING)
#else
#define THRIFTY_MISSING INT32_MAX
#define IS_MISSING(code) ((code) > 0x7f800000)
#endif
#if THRIFTY_SHORT_CUTS
#define CUT_UNIT INT32_C(65536) /* cuts are the upper halves of thresholds */
#else
#define CUT_UNIT 1
#endif

/* Trees in a row: number of the first of them, of their first split, and of the first value of their leaves. */
typedef struct {
    thrifty_number tree;
#if !THRIFTY_IS_CODE
    thrifty_number split, leaf;
#endif
} thrifty_trees;

typedef struct {
#if THRIFTY_GATE_IN_LEAVES
    double margin; /* weight of the uncertainty in a gate of leaves */
#endif
#if THRIFTY_HAS_CALIBRATION
    double slope;
#endif
#if THRIFTY_LEAF_BITS == 16 && THRIFTY_HAS_GATES
    double gate_unit; /* of a leaf of the gate */
#endif
    thrifty_trees trees;
#if THRIFTY_HAS_GATES
    thrifty_trees gate;
#endif
    thrifty_number numbers; /* shifts of the scores, where calibrated; start of the gate */
#if THRIFTY_RESTARTS
    thrifty_number starts; /* what sums start from, unless they are carried on */
#endif
#if THRIFTY_HAS_GATES
    thrifty_number score_cuts; /* first of THRIFTY_N_SCORES + 1 places in score_starts */
    uint16_t n_gate;           /* trees */
#endif
    uint16_t n_trees;
    uint16_t n_held; /* columns of the order of purchase */
    uint16_t scale;  /* units of a leaf of 16 bits */
#if THRIFTY_RESTARTS
    uint8_t carries; /* sums go on from the scores of the stage before */
#endif
    uint8_t gate_first; /* the first sum is the gate */
    uint8_t by_margin;  /* the uncertainty is the gate, or a part of it */
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
#define SCORE_CODES (THRIFTY_IS_CODE ? THRIFTY_N_COLUMNS : N_ORDER)
/* Place of the code of a column, the held-th. */
#define PLACE(held) (THRIFTY_IS_CODE ? order[held] : (held))
#if THRIFTY_HAS_TREE
/* Place of the column to give next, the first of its node that the row lacks. */
#define NEXT(session) ((session)->next)
#define HOLDS_ALL(session) holds_all(session)
#else
#define NEXT(session) ((session)->n_held)
#define HOLDS_ALL(session) ((session)->n_held >= stages[(session)->stage].n_held)
#endif
/* Scores stand behind the gate where leaves have both. */
#define FIRST_SCORE THRIFTY_GATE_IN_LEAVES

/* One by one, so that no compiler calls memcpy or memset, which a target without a C library lacks. */
#define COPY(to, from) (*(volatile thrifty_sum *)&(to) = (from))

#if THRIFTY_LEAF_BITS == 16
/* Sums are whole numbers of units, which none of them exceeds 2^30 of. */
#define NUMBER(sum) ((double)(sum) * @UNIT@)
#else
#define NUMBER(sum) (sum)
/* Sums that are added up in one pass over the trees: more take more stack. */
#define MOST_SUMS 4
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
/* A tree is in preorder: a split, what is on its left, what is on its right. The link of a split has, above its flags,
 * how many splits the way to the right skips, itself included, and as many leaves. */
#define MISSING_LEFT 1u
#define RIGHT_IS_LEAF 2u
#define IS_SET 4u
#define LINK_UNIT (THRIFTY_HAS_SETS ? 8u : 4u)

/* Number of the leaf that a row reaches in a tree, from the tables of its splits. */
static uint32_t leaf_of(IN_TABLE thrifty_place *place, IN_TABLE thrifty_link *link, IN_TABLE thrifty_cut *cut,
                        const thrifty_code *codes)
{
    uint32_t split = 0, leaf = 0;
    for (;;) {
        const uint32_t way = link[split];
        const thrifty_code code = codes[place[split]];
        int left;
#if THRIFTY_HAS_SETS
        if (way & IS_SET)
            left = in_set(code, (unsigned)cut[split], way & MISSING_LEFT);
        else
#endif
            left = code <= cut[split] * CUT_UNIT || ((way & MISSING_LEFT) && IS_MISSING(code));
        if (left) {
            split++;
            if (way < 2 * LINK_UNIT) /* nothing but a leaf is on the left */
                return leaf;
        } else {
            split += way / LINK_UNIT;
            leaf += way / LINK_UNIT;
            if (way & RIGHT_IS_LEAF)
                return leaf;
        }
    }
}
#endif

/* Add values first, first + 1, ... of the leaves of some trees, times a scale, to as many sums. */
static void add_trees(IN_TABLE thrifty_trees *forest, unsigned n_trees, unsigned n_outputs, unsigned first,
                      unsigned n_sums, int32_t scale, const thrifty_code *codes, thrifty_sum *sums)
{
#if THRIFTY_IS_CODE
    IN_TABLE thrifty_tree *tree = &trees[forest->tree];
    (void)n_outputs;
#else
    IN_TABLE thrifty_size *tree = &sizes[forest->tree];
    IN_TABLE thrifty_leaf *leaf = &leaves[forest->leaf + first];
    IN_TABLE thrifty_place *place = &places[forest->split];
    IN_TABLE thrifty_link *link = &links[forest->split];
    IN_TABLE thrifty_cut *cut = &cuts[forest->split];
#endif
    (void)scale;
    for (; n_trees; n_trees--, tree++) {
#if THRIFTY_LEAF_IN_CODE
        (void)first;
        (void)n_sums;
        sums[0] += (*tree)(codes) * scale;
#else
        unsigned k;
#if THRIFTY_IS_CODE
        IN_TABLE thrifty_leaf *reached = &leaves[(*tree)(codes) + first];
#else
        const uint32_t size = *tree;
        IN_TABLE thrifty_leaf *reached = leaf + (size ? leaf_of(place, link, cut, codes) : 0) * n_outputs;
        place += size;
        link += size;
        cut += size;
        leaf += (size + 1) * n_outputs;
#endif
        for (k = 0; k < n_sums; k++)
#if THRIFTY_LEAF_BITS == 16
            sums[k] += reached[k] * scale;
#else
            sums[k] += (double)reached[k];
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

/* Scores and gate of the stage whose columns the row holds; on its own, so that its loops have registers enough. */
#if THRIFTY_N_STAGES > 1 && defined(__GNUC__)
__attribute__((noinline))
#endif
static double visit(thrifty_session *session, const thrifty_code *codes)
{
    IN_TABLE thrifty_stage *stage = &stages[session->stage];
    const unsigned gate_first = THRIFTY_GATE_IN_LEAVES && stage->gate_first, n_sums = THRIFTY_N_SCORES + gate_first;
    thrifty_sum *sums = &session->score[FIRST_SCORE - gate_first];
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
    add_trees(&stage->trees, stage->n_trees, n_sums, 0, n_sums, stage->scale, codes, sums);
#else
    unsigned first;
    for (first = 0; first < n_sums; first += MOST_SUMS) {
        double part[MOST_SUMS];
        const unsigned n_parts = n_sums - first < MOST_SUMS ? n_sums - first : MOST_SUMS;
        for (k = 0; k < n_parts; k++)
            COPY(part[k], 0.0);
        add_trees(&stage->trees, stage->n_trees, n_sums, first, n_parts, 1, codes, part);
        for (k = 0; k < n_parts; k++)
            sums[first + k] += part[k];
    }
#endif
#if THRIFTY_GATE_IN_LEAVES
    if (gate_first)
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
            session->code[SCORE_CODES + k] = (thrifty_code)((low - begin) * CUT_UNIT);
        }
        add_trees(&stage->gate, stage->n_gate, 1, 0, 1, 1, codes, &sum);
        gate = numbers[stage->numbers + THRIFTY_HAS_CALIBRATION * THRIFTY_N_SCORES];
#if THRIFTY_LEAF_BITS == 16
        gate += (double)sum * stage->gate_unit;
#else
        gate += sum;
#endif
    }
#endif
    if (stage->by_margin) {
        const double unsure = uncertainty(session, session->stage);
#if THRIFTY_GATE_IN_LEAVES
        if (gate_first) {
            volatile double weighted = stage->margin * unsure;
            return gate - weighted;
        }
#endif
        gate = unsure;
    }
    return gate;
}

@TREE@
/* Visit every stage whose columns the row holds, until one keeps it. */
static void advance(thrifty_session *session, const thrifty_code *codes)
{
    IN_TABLE thrifty_point *point = &points[session->point];
    IN_TABLE double *in_force = &thresholds[THRIFTY_N_STAGES * (uint32_t)(session->upper ? point->upper : point->lower)];
    while (session->stage < THRIFTY_N_STAGES && HOLDS_ALL(session)) {
#if THRIFTY_HAS_TREE
        const double gate = visit_node(session, codes);
#else
        const double gate = visit(session, codes);
#endif
        if (!(gate > in_force[session->stage])) {
            session->status = THRIFTY_DONE;
            return;
        }
        session->stage++;
#if THRIFTY_HAS_TREE
        if (session->stage < THRIFTY_N_STAGES)
            session->node = next_node(session);
#endif
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
#if THRIFTY_HAS_TREE
    session->node = session->visited = 0;
    for (k = 0; k < N_ORDER; k++)
        *(volatile uint8_t *)&session->level[k] = NOT_HELD; /* no memset either */
#endif
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
    return session->status ? session->status : (int)order[NEXT(session)];
}

#if !THRIFTY_COMPARES_FLOATS || THRIFTY_HAS_TREE
/* Floats as whole numbers in the same order, both zeros 0, missing values above all others. */
static int32_t ordered(uint32_t bits)
{
    int32_t number = (int32_t)bits;
    if (number < 0) {
        number = (int32_t)(0x80000000u - bits);
        if (number < -0x7f800000)
            number = INT32_MAX;
    }
    return number;
}
#endif

/* Code of a column, the held-th, from the bits of a float; infinities are larger or smaller than every other number. */
static thrifty_code code_of(unsigned held, uint32_t bits)
{
#if THRIFTY_COMPARES_FLOATS || THRIFTY_HAS_LEVELS
    union {
        uint32_t bits;
        float value;
    } given;
    given.bits = bits;
#endif
#if THRIFTY_HAS_LEVELS
    if (n_levels[held]) {
        if (given.value >= 0.0f && given.value < (float)n_levels[held])
            return (thrifty_code)(unsigned)given.value;
        return THRIFTY_MISSING;
    }
#endif
#if THRIFTY_COMPARES_FLOATS
    (void)held;
    return given.value;
#else
    {
        const int32_t number = ordered(bits);
#if !THRIFTY_LOOKS_UP
        (void)held;
        return THRIFTY_IS_CODE && IS_MISSING(number) ? THRIFTY_MISSING : number;
#else
        {
            uint32_t low = first_limit[held], high = first_limit[held + 1u];
            const uint32_t begin = low;
            if (number > 0x7f800000)
                return THRIFTY_MISSING;
            while (high - low > 8) {
                const uint32_t middle = (low + high) / 2;
                if (limits[middle] < number)
                    low = middle + 1;
                else
                    high = middle;
            }
            while (low < high && limits[low] < number)
                low++;
            return (thrifty_code)(low - begin);
        }
#endif
    }
#endif
}

#if THRIFTY_HAS_TREE
/* Level of a column in the mixture. */
static uint8_t level_of(unsigned place, uint32_t bits)
{
    const uint32_t first = end_starts[place], end = end_starts[place + 1u];
    const int32_t number = ordered(bits);
    uint32_t at = first;
    if (number > 0x7f800000 || IS_MISSING(code_of(place, bits)))
        return (uint8_t)(end - first + 1u);
    while (at < end && ends[at] < number)
        at++;
    return (uint8_t)(at - first);
}
#endif

static void put(thrifty_session *session, uint32_t bits)
{
    const unsigned place = NEXT(session);
    session->code[PLACE(place)] = code_of(place, bits);
#if THRIFTY_HAS_TREE
    session->level[place] = level_of(place, bits);
#endif
    session->n_held++;
    if (HOLDS_ALL(session))
        advance(session, session->code);
}

static int take(thrifty_session *session, uint32_t bits)
{
    if (session->status || (bits & 0x7fffffffu) == 0x7f800000u)
        return THRIFTY_REFUSED;
    put(session, bits);
    return 0;
}

int thrifty_walk(thrifty_session *session, uint64_t key, const float *row)
{
    thrifty_start(session, key);
#if THRIFTY_HAS_TREE
    while (!session->status) {
        union {
            float value;
            uint32_t bits;
        } given;
        given.value = row[order[NEXT(session)]];
        put(session, given.bits);
    }
#else
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
        unsigned held = session->n_held;
        do {
            given.value = row[order[held]];
            session->code[PLACE(held)] = code_of(held, given.bits);
        } while (++held < end);
#endif
        session->n_held = (uint16_t)end;
        advance(session, codes);
    }
#endif
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
#if THRIFTY_HAS_TREE
    return costs[session->n_held > n_held_by[session->visited] ? session->node + 1u : session->visited];
#elif THRIFTY_EVEN_COSTS
    return @PRICE@ * (float)session->n_held;
#else
    return costs[session->n_held];
#endif
}@COST_IN_PROGRAM@

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

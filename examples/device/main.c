/* A sensor loop: measure what the system asks for, act where it is sure, and leave the rest to the server.
 *
 * Sensors are a file of rows here, readings.bin; rows for the server go to ask.bin. */
#include "start.h"
#include "thrifty_model.h"

static float sensors[THRIFTY_N_COLUMNS];

/* A whole number as text. */
static char *put_number(char *out, uint32_t number)
{
    char digits[10];
    int n = 0;
    do
        digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n)
        *out++ = digits[--n];
    return out;
}

static char *put_text(char *out, const char *text)
{
    while (*text)
        *out++ = *text++;
    return out;
}

static void report(const char *what, uint32_t number)
{
    char line[80], *end = put_number(put_text(line, what), number);
    *end++ = '\n';
    *end = 0;
    print(line);
}

int main(void)
{
    const int readings = open_file("readings.bin", 0), ask = open_file("ask.bin", 1);
    uint32_t n_rows = 0, n_measured = 0, n_asked = 0, n_second = 0;
    for (; read_file(readings, sensors, sizeof sensors) == sizeof sensors; n_rows++) {
        thrifty_session session;
        int column;
        thrifty_start(&session, n_rows);
        while ((column = thrifty_next(&session)) >= 0) {
            thrifty_give(&session, sensors[column]); /* here a real device switches a sensor on */
            n_measured++;
        }
        if (column == THRIFTY_DONE) {
            n_second += thrifty_label(&session) == 1;
        } else {
            /* number of the row, and its cells: a radio sends them with THRIFTY_MODEL_ID */
            write_file(ask, &n_rows, sizeof n_rows);
            write_file(ask, sensors, sizeof sensors);
            n_asked++;
        }
    }
    print("system " THRIFTY_MODEL_ID "\n");
    report("rows: ", n_rows);
    report("measured: ", n_measured);
    report("of: ", n_rows * THRIFTY_N_COLUMNS);
    report("answered here with the second class: ", n_second);
    report("sent to the server: ", n_asked);
    return 0;
}

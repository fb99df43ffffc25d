/* The timeline of a memory snapshot: who held what, event by event.
 *
 * Stacked from what stays to what comes and goes, as the pages of pytorch.org/memory_viz draw it; colours
 * after Okabe and Ito (2008), which the colour-blind tell apart. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "diagnose.h"
#include "svg.h"

#define GIB 1073741824.0

static const struct {
	const char *fill;
	char letter;
} looks[OOM_HELD_KINDS] = {
	[OOM_HELD_BEFORE] = {"#4d4d4d", 'B'},	[OOM_HELD_PARAMS] = {"#0072b2", 'P'},
	[OOM_HELD_INPUTS] = {"#999999", 'i'},	[OOM_HELD_GRADS] = {"#d55e00", 'G'},
	[OOM_HELD_OPT] = {"#009e73", 'O'},	[OOM_HELD_FORWARD] = {"#56b4e9", 'a'},
	[OOM_HELD_LOSS] = {"#f0e442", 'L'},	[OOM_HELD_RECOMPUTE] = {"#cc79a7", 'r'},
	[OOM_HELD_BACKWARD] = {"#e69f00", 'b'}, [OOM_HELD_COMM] = {"#7a5195", 'c'},
	[OOM_HELD_OTHER] = {"#c0c0c0", '.'},	[OOM_HELD_NO_FRAMES] = {"#dddddd", ','},
};

static uint64_t most_of(const struct oom_snapshot *s, const struct oom_eval *e)
{
	uint64_t most = e && e->overall_peak > 1 ? e->overall_peak : 1;

	for (size_t i = 0; i < s->n_points; i++)
		if (s->point[i].bytes > most)
			most = s->point[i].bytes;
	return most;
}

static bool appears(const struct oom_snapshot *s, int held)
{
	for (size_t i = 0; i < s->n_points; i++)
		if (s->point[i].held[held])
			return true;
	return false;
}

/* ---- SVG ---- */

enum { WIDTH = 980, HEIGHT = 440, LEFT = 80, RIGHT = 20, TOP = 60, BOTTOM = 90 };

static void legend(FILE *out, const struct oom_snapshot *s)
{
	double x = LEFT, y = HEIGHT - BOTTOM + 46;

	for (int h = 0; h < OOM_HELD_KINDS; h++) {
		const char *const name = oom_held_str((enum oom_held)h);
		const double w = 30 + 6.7 * (double)strlen(name);

		if (!appears(s, h))
			continue;
		if (x + w > WIDTH - 10) {
			x = LEFT;
			y += 20;
		}
		oom_svg_rect(out, x, y - 10, 12, 12, looks[h].fill, NULL);
		oom_svg_text(out, x + 17, y, 11.5, OOM_ANCHOR_START, OOM_SVG_INK, "%s", name);
		x += w;
	}
}

static void columns(FILE *out, const struct oom_snapshot *s, double per_byte)
{
	const double w = (double)(WIDTH - LEFT - RIGHT) / (double)s->n_points;

	for (size_t i = 0; i < s->n_points; i++) {
		double y = HEIGHT - BOTTOM;

		for (int h = 0; h < OOM_HELD_KINDS; h++) {
			const double high = (double)s->point[i].held[h] * per_byte;
			char tip[120], size[32];

			if (!s->point[i].held[h])
				continue;
			snprintf(tip, sizeof(tip), "event %zu, %s: %s", s->point[i].event,
				 oom_held_str((enum oom_held)h),
				 oom_format_bytes(s->point[i].held[h], size, sizeof(size)));
			y -= high;
			oom_svg_rect(out, LEFT + w * (double)i, y, w, high, looks[h].fill, tip);
		}
	}
}

static void axis(FILE *out, uint64_t most, double per_byte)
{
	for (int i = 0; i <= 4; i++) {
		const double bytes = (double)most * i / 4, y = HEIGHT - BOTTOM - bytes * per_byte;
		char size[32];

		oom_svg_line(out, LEFT, y, WIDTH - RIGHT, y, "#e0e0e0", i ? "2 3" : NULL);
		oom_svg_text(out, LEFT - 6, y + 4, 11, OOM_ANCHOR_END, OOM_SVG_INK, "%s",
			     oom_format_bytes((uint64_t)bytes, size, sizeof(size)));
	}
}

/* The plan's peak of each piece's phase, as steps over the columns; their names where they begin. */
static void predictions(FILE *out, const struct oom_snapshot *s, const struct oom_eval *e, double per_byte)
{
	const double w = (double)(WIDTH - LEFT - RIGHT) / (double)s->n_points;
	struct oom_recorded_phases r;
	double before = -1;

	oom_phases_read(s, &r);
	for (size_t i = 0; i < s->n_points; i++) {
		const double x = LEFT + w * (double)i, y = HEIGHT - BOTTOM - (double)e->peak[r.of_point[i]] * per_byte;

		if (before >= 0 && fabs(before - y) > 0.5)
			oom_svg_line(out, x, before, x, y, "#b00020", "2 2");
		oom_svg_line(out, x, y, x + w, y, "#b00020", NULL);
		if (!i || r.of_point[i] != r.of_point[i - 1])
			oom_svg_text(out, x + 2, y - 4, 9.5, OOM_ANCHOR_START, "#b00020", "%s", oom_phase_str((enum oom_phase)r.of_point[i]));
		before = y;
	}
}

void oom_timeline_svg(FILE *out, const struct oom_snapshot *s, const struct oom_eval *e)
{
	const uint64_t most = most_of(s, e), predicted = e ? e->overall_peak : 0;
	const double per_byte = (double)(HEIGHT - TOP - BOTTOM) / ((double)most * 1.04);
	char size[32];

	oom_svg_begin(out, WIDTH, HEIGHT, "who held the memory, event by event");
	oom_svg_text(out, LEFT, 26, 15, OOM_ANCHOR_START, OOM_SVG_INK,
		     "device %" PRId64 ": %s at its peak, event %zu of %zu", s->device,
		     oom_format_bytes(s->peak_bytes, size, sizeof(size)), s->peak_event, s->n_events);
	axis(out, most, per_byte);
	columns(out, s, per_byte);
	if (predicted) {
		const double y = HEIGHT - BOTTOM - (double)predicted * per_byte;

		oom_svg_line(out, LEFT, y, WIDTH - RIGHT, y, "#b00020", "6 3");
		oom_svg_text(out, WIDTH - RIGHT, y - 5, 12, OOM_ANCHOR_END, "#b00020", "predicted peak %s",
			     oom_format_bytes(predicted, size, sizeof(size)));
		predictions(out, s, e, per_byte);
	}
	oom_svg_text(out, LEFT, HEIGHT - BOTTOM + 18, 11.5, OOM_ANCHOR_START, OOM_SVG_INK, "events 1 to %zu",
		     s->n_events);
	legend(out, s);
	oom_svg_end(out);
}

/* ---- characters ---- */

enum { ROWS = 16, COLUMNS = 64 };

/* The point of a column at which most was held. */
static const struct oom_snapshot_point *point_at(const struct oom_snapshot *s, size_t column, size_t n)
{
	const size_t from = column * s->n_points / n, to = (column + 1) * s->n_points / n;
	const struct oom_snapshot_point *most = &s->point[from];

	for (size_t i = from + 1; i < to; i++)
		if (s->point[i].bytes > most->bytes)
			most = &s->point[i];
	return most;
}

/* The kind at that height of the stack; a blank above it. */
static char cell(const struct oom_snapshot_point *p, double bytes)
{
	double sum = 0;

	for (int h = 0; h < OOM_HELD_KINDS; h++) {
		sum += (double)p->held[h];
		if (bytes < sum)
			return looks[h].letter;
	}
	return ' ';
}

void oom_timeline_text(const struct oom_snapshot *s, const struct oom_eval *e)
{
	const uint64_t predicted = e ? e->overall_peak : 0;
	const double most = (double)most_of(s, e);
	const size_t n = s->n_points < COLUMNS ? s->n_points : COLUMNS;
	struct oom_recorded_phases r;

	oom_phases_read(s, &r);
	printf("\nwho held it, over %zu events\n", s->n_events);
	for (int row = ROWS; row-- > 0;) {
		const double from = most * row / ROWS, to = most * (row + 1) / ROWS;
		const bool line = predicted && (double)predicted > from && (double)predicted <= to;

		printf("%12s |", oom_gib((uint64_t)to));
		for (size_t i = 0; i < n; i++) {
			const struct oom_snapshot_point *const p = point_at(s, i, n);
			const char c = cell(p, (from + to) / 2);
			const double plan = e ? (double)e->peak[r.of_point[p - s->point]] : 0;

			/* of its phase */
			putchar(plan > from && plan <= to ? '=' : c == ' ' && line ? '-' : c);
		}
		printf("%s\n", line ? "- predicted peak" : "");
	}
	if (e)
		printf("%14c the plan's peak of the phase\n", '=');
	for (int h = 0; h < OOM_HELD_KINDS; h++)
		if (appears(s, h))
			printf("%14c %s\n", looks[h].letter, oom_held_str((enum oom_held)h));
}

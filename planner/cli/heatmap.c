/* Where in a grid a model fits. */
#include <stdlib.h>
#include <string.h>

#include "out.h"
#include "plot.h"
#include "svg.h"
#include "term.h"

enum { MOST = 200 };                    /* cells a side */
enum state { FITS, TIGHT, NOT, IMPOSSIBLE, STATES };
static const struct {
	const char *words, *fill, *ink, *color, *block, *letter;
} look[STATES] = {
	[FITS] = {"fits", "#009e73", "#ffffff", "38;5;36", "\u2588", "#"},
	[TIGHT] = {"tight: less than a tenth free", "#e69f00", "#1a1a1a", "38;5;214", "\u2593", "+"},
	[NOT] = {"does not fit", "#b0503f", "#ffffff", "38;5;131", "\u2591", "."},
	[IMPOSSIBLE] = {"cannot run", "#d9d9d9", "#6b6b6b", "38;5;250", " ", " "},
};

struct map {
	struct oom_sweep *sweep;
	size_t axis[2];                 /* x, y */
	const char *name[2];
	uint64_t n[2];
	struct cell {
		uint8_t state;
		uint64_t used, capacity;
	} *cell;
	char caption[200];
	char settings[700];             /* of every cell, beside the axes: "" until one was priced */
};

/* The knobs that all cells share, where they are not the defaults, and the limit. */
static void settings(struct map *m, const struct oom_sweep_cell *c)
{
	struct oom_plan def = oom_plan_default();
	char options[500], capacity[32], value[OOM_VALUE_SIZE];

	def.compute_capability = c->plan->compute_capability;
	if (c->plan->precision_unasked)
		def.precision = c->plan->precision;
	for (int k = 0; k < 2; k++) {
		const struct oom_option *knob = oom_knob_find(m->name[k]);

		if (knob)
			oom_plan_set(&def, knob, oom_plan_get(c->plan, knob, value, sizeof(value)), NULL);
	}
	oom_plan_options(&def, c->plan, options, sizeof(options));
	snprintf(m->settings, sizeof(m->settings), "%s; the limit is %s%s less a margin of %g %%",
		 *options ? options : "default settings",
		 oom_format_bytes(c->capacity_bytes, capacity, sizeof(capacity)),
		 oom_knob_find(m->name[0]) && oom_knob_find(m->name[1]) ? "" : " (of the first card)",
		 100 * c->plan->margin);
}

static void on_cell(void *ctx, const struct oom_sweep_cell *c)
{
	struct map *m = ctx;
	struct cell *to = &m->cell[c->at[m->axis[1]] * m->n[0] + c->at[m->axis[0]]];

	if (!*m->settings && c->plan)
		settings(m, c);
	to->used = c->ok ? c->eval->used_bytes : 0;
	to->capacity = c->capacity_bytes;
	to->state = !c->ok					       ? IMPOSSIBLE :
		    !c->fits					       ? NOT :
		    (double)to->used > 0.9 * (double)c->capacity_bytes ? TIGHT :
									 FITS;
}

/* The number of an axis by name, or -1. */
static int axis_named(const struct oom_sweep *s, const char *want)
{
	const struct oom_option *knob = oom_knob_find(want);
	const char *name;
	uint64_t n;

	for (size_t i = 0; oom_sweep_axis_at(s, i, &name, &n); i++)
		if (!strcmp(name, knob ? knob->column : want))
			return (int)i;
	return -1;
}

static enum oom_status no_axis(const struct oom_sweep *s, const char *want, struct oom_error *err)
{
	const char *words[32] = {NULL}, *near;
	uint64_t n;

	for (size_t i = 0; i < 31 && oom_sweep_axis_at(s, i, &words[i], &n); i++)
		;
	near = oom_nearest(want, words);
	return oom_error_set(err, OOM_ERR_INVALID, "heatmap: \"%s\" is no axis of this sweep%s%s%s",
			     want, near ? " (did you mean \"" : "", near ? near : "",
			     near ? "\"?)" : "");
}

/* Both axes found, every other one of a single value, which the caption names. */
static enum oom_status find_axes(struct map *m, const char *x, const char *y, struct oom_error *err)
{
	const int at[2] = {axis_named(m->sweep, x), axis_named(m->sweep, y)};
	size_t used = 0;
	const char *name;
	uint64_t n;
	char buf[OOM_VALUE_SIZE];

	if (at[0] < 0 || at[1] < 0)
		return no_axis(m->sweep, at[0] < 0 ? x : y, err);
	if (at[0] == at[1])
		return oom_error_set(err, OOM_ERR_INVALID, "heatmap: x and y are both %s", x);
	for (int i = 0; oom_sweep_axis_at(m->sweep, (size_t)i, &name, &n); i++) {
		if (i == at[0] || i == at[1]) {
			const int k = i == at[1];

			m->axis[k] = (size_t)i;
			m->name[k] = name;
			m->n[k] = n;
			continue;
		}
		if (n > 1)
			return oom_error_set(err, OOM_ERR_INVALID,
					     "heatmap: axis %s has %llu values; beside x and y an "
					     "axis may have one",
					     name, (unsigned long long)n);
		if (used < sizeof(m->caption))
			used += (size_t)snprintf(m->caption + used, sizeof(m->caption) - used,
						 "%s%s %s", used ? ", " : "", name,
						 oom_sweep_value_text(m->sweep, (size_t)i, 0, buf,
								      sizeof(buf)));
	}
	if (m->n[0] > MOST || m->n[1] > MOST)
		return oom_error_set(err, OOM_ERR_LIMIT,
				     "heatmap: %llu x %llu cells; at most %d x %d are drawn",
				     (unsigned long long)m->n[0], (unsigned long long)m->n[1], MOST,
				     MOST);
	return OOM_OK;
}

static const char *value(const struct map *m, int k, uint64_t i, char buf[OOM_VALUE_SIZE])
{
	return oom_shown(oom_sweep_value_text(m->sweep, m->axis[k], i, buf, 140));
}

/* Of the values of an axis. */
static size_t widest(const struct map *m, int k)
{
	char buf[OOM_VALUE_SIZE];
	size_t most = 1;

	for (uint64_t i = 0; i < m->n[k]; i++) {
		const size_t n = oom_display_width(value(m, k, i, buf));

		most = n > most ? n : most;
	}
	return most;
}

/* ---- SVG ---- */

static void one(FILE *out, const struct map *m, uint64_t x, uint64_t y, double px, double py,
		double w, double h)
{
	const struct cell *c = &m->cell[y * m->n[0] + x];
	char tip[300], size[32], bx[OOM_VALUE_SIZE], by[OOM_VALUE_SIZE];

	oom_format_bytes(c->used, size, sizeof(size));
	snprintf(tip, sizeof(tip), "%s %.60s, %s %.60s: %s%s%s", m->name[0], value(m, 0, x, bx),
		 m->name[1], value(m, 1, y, by), c->state == IMPOSSIBLE ? "" : size,
		 c->state == IMPOSSIBLE ? "" : ", ", look[c->state].words);
	oom_svg_rect(out, px, py, w - 1, h - 1, look[c->state].fill, tip);
	if (w >= 44 && h >= 18 && c->state != IMPOSSIBLE)
		oom_svg_text(out, px + w / 2, py + h / 2 + 4, w > 60 ? 11 : 10, OOM_ANCHOR_MIDDLE,
			     look[c->state].ink, "%.*f", c->used < 100ull << 30 ? 1 : 0,
			     (double)c->used / 1073741824.0);
}

static void svg(FILE *out, const struct map *m)
{
	const size_t names = widest(m, 1) > strlen(m->name[1]) ? widest(m, 1) : strlen(m->name[1]);
	const double left = 32 + 7.2 * (double)(names > 40 ? 40 : names), top = 102;
	const double w = m->n[0] > 60 ? 9 :
			 m->n[0] > 16 ? 46 - 0.6 * (double)m->n[0] :
					64,
		     h = m->n[1] > 60 ? 9 :
			 m->n[1] > 30 ? 14 :
					26;
	const double right = left + w * (double)m->n[0], bottom = top + h * (double)m->n[1];
	const double width = right + 30 > 620 ? right + 30 : 620;
	/* every value has its label: upright where they have no room side by side, smaller where cells are */
	const bool up = 7.2 * (double)widest(m, 0) > w;
	const double size_x = up && w < 12 ? 8 : 11, size_y = h < 13 ? 8 : 11;
	const double under = up ? 6.2 * (double)(widest(m, 0) > 40 ? 40 : widest(m, 0)) : 14;
	char buf[OOM_VALUE_SIZE], about[220];
	double x = 16;

	snprintf(about, sizeof(about), "where it fits: %.200s", m->caption);
	oom_svg_begin(out, width, bottom + under + 58, about);
	oom_svg_text(out, 16, 28, 17, OOM_ANCHOR_START, OOM_SVG_INK, "where it fits: %s against %s",
		     m->name[1], m->name[0]);
	oom_svg_text(out, 16, 48, 12, OOM_ANCHOR_START, "#6b6b6b", "%s%s", m->caption,
		     w >= 44 && h >= 18 ? "; numbers are GiB used" : "");
	oom_svg_text(out, 16, 66, 12, OOM_ANCHOR_START, "#6b6b6b", "%s", m->settings);
	oom_svg_text(out, left - 8, top - 8, 12, OOM_ANCHOR_END, OOM_SVG_INK, "%s", m->name[1]);
	for (uint64_t j = 0; j < m->n[1]; j++) {
		const double y = top + h * (double)j;

		oom_svg_text(out, left - 8, y + h / 2 + size_y / 3, size_y, OOM_ANCHOR_END,
			     OOM_SVG_INK, "%.40s", value(m, 1, j, buf));
		for (uint64_t i = 0; i < m->n[0]; i++)
			one(out, m, i, j, left + w * (double)i, y, w, h);
	}
	for (uint64_t i = 0; i < m->n[0]; i++) {
		const double at = left + w * ((double)i + 0.5);

		if (up)
			oom_svg_text_up(out, at + size_x / 3, bottom + 6, size_x, OOM_SVG_INK, "%.40s",
					value(m, 0, i, buf));
		else
			oom_svg_text(out, at, bottom + 14, size_x, OOM_ANCHOR_MIDDLE, OOM_SVG_INK,
				     "%.40s", value(m, 0, i, buf));
	}
	oom_svg_text(out, left + w * (double)m->n[0] / 2, bottom + under + 18, 12, OOM_ANCHOR_MIDDLE,
		     OOM_SVG_INK, "%s", m->name[0]);
	for (int s = 0; s < STATES; s++) {
		oom_svg_rect(out, x, bottom + under + 32, 12, 12, look[s].fill, NULL);
		oom_svg_text(out, x + 17, bottom + under + 42, 11.5, OOM_ANCHOR_START, OOM_SVG_INK, "%s",
			     look[s].words);
		x += 32 + 6.2 * (double)strlen(look[s].words);
	}
	oom_svg_end(out);
}

/* ---- the terminal ---- */

static void mark(FILE *out, enum state s, int n)
{
	const bool color = oom_term_color(), unicode = oom_term_unicode();

	if (color)
		fprintf(out, "\033[%sm", look[s].color);
	for (int i = 0; i < n; i++)
		fputs(!unicode		       ? look[s].letter :
		      color && s != IMPOSSIBLE ? "\u2588" :
						 look[s].block,
		      out);
	if (color)
		fputs("\033[0m", out);
}

/* Labels of columns that have no room side by side: a letter per line, from the top down. */
static void labels_down(FILE *out, const struct map *m, int left, int lines, int each)
{
	char buf[OOM_VALUE_SIZE];

	for (int line = 0; line < lines; line++) {
		fprintf(out, "%*s  ", left, "");
		for (uint64_t i = 0; i < m->n[0]; i++) {
			const char *label = value(m, 0, i, buf);
			const int at = line - (lines - (int)strlen(label));

			fputc(at < 0 ? ' ' : label[at], out);
			if (each > 1)
				fputc(' ', out);
		}
		fputc('\n', out);
	}
}

static bool ascii(const struct map *m, int k)
{
	char buf[OOM_VALUE_SIZE];

	for (uint64_t i = 0; i < m->n[k]; i++)
		for (const char *p = value(m, k, i, buf); *p; p++)
			if ((unsigned char)*p > 126)
				return false;
	return true;
}

static void text(FILE *out, const struct map *m)
{
	const int names = (int)strlen(m->name[1]), values = (int)widest(m, 1),
		  left = values > names ? values : names, right = (int)widest(m, 0);
	const int room = oom_term_width() - left - 3, each = (int)m->n[0] * (right + 1) <= room ?
								     right + 1 :
							     (int)m->n[0] * 2 <= room ? 2 :
											1;
	char buf[OOM_VALUE_SIZE];

	fprintf(out, "%s\n", oom_shown(m->caption));
	fprintf(out, "%s\n%*s  %s\n", oom_shown(m->settings), left, m->name[1], m->name[0]);
	if (each > 2) {
		fprintf(out, "%*s ", left, "");
		for (uint64_t i = 0; i < m->n[0]; i++)
			fprintf(out, " %*s", each - 1, value(m, 0, i, buf));
		fputc('\n', out);
	} else if (ascii(m, 0)) {
		labels_down(out, m, left, right, each);
	} else {
		fprintf(out, "%*s  %s", left, "", value(m, 0, 0, buf));
		fprintf(out, " to %s\n", value(m, 0, m->n[0] - 1, buf));
	}
	for (uint64_t j = 0; j < m->n[1]; j++) {
		fprintf(out, "%*s  ", left, value(m, 1, j, buf));
		for (uint64_t i = 0; i < m->n[0]; i++) {
			mark(out, (enum state)m->cell[j * m->n[0] + i].state,
			     each > 1 ? each - 1 : 1);
			if (each > 1)
				fputc(' ', out);
		}
		fputc('\n', out);
	}
	for (int s = 0; s < STATES; s++) {
		fputs(s ? "  " : "", out);
		mark(out, (enum state)s, 1);
		fprintf(out, " %s", look[s].words);
	}
	fputc('\n', out);
}

enum oom_status oom_heatmap(struct oom_sweep *s, const struct oom_sweep_options *o, const char *x,
			    const char *y, const char *path, struct oom_error *err)
{
	struct map m = {.sweep = s};
	struct oom_out out;
	enum oom_status st = find_axes(&m, x, y, err);

	if (!st && !oom_sweep_has(s, "gpu"))
		st = oom_error_set(err, OOM_ERR_INVALID, "heatmap: against which card? --gpu NAME");
	if (st)
		return st;
	m.cell = calloc(m.n[0] * m.n[1], sizeof(*m.cell));
	if (!m.cell)
		return oom_error_set(err, OOM_ERR_MEMORY, "out of host memory");
	st = oom_sweep_each(s, o, on_cell, &m, err);
	if (!st && !path) {
		text(stdout, &m);
	} else if (!st && !(st = oom_out_open(&out, path, err))) {
		svg(out.file, &m);
		st = oom_out_close(&out, err);
	}
	free(m.cell);
	return st;
}

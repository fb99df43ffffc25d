/* The anatomy of a plan as a picture. */
#include "plot.h"

#include <math.h>
#include <string.h>

#include "svg.h"
#include "term.h"

#define GIB 1073741824.0

/* What a bar is made of, from the left: what is always there first, what comes and goes last.
 * Colours after Okabe and Ito (2008), which the colour-blind tell apart; and for terminals an
 * index of the 256, a shade and a letter. */
static const struct part {
	const char *name, *fill, *color, *shade, *letter;
	int bucket[4];                  /* ends with -1 */
} parts[] = {
	{"weights", "#0072b2", "38;5;25", "\u2588", "W", {OOM_BUCKET_PARAMS, -1}},
	{"optimizer state", "#009e73", "38;5;36", "\u2593", "O", {OOM_BUCKET_OPT, -1}},
	{"gradients", "#d55e00", "38;5;166", "\u2592", "G", {OOM_BUCKET_GRADS, -1}},
	{"inputs, buffers, communication", "#56b4e9", "38;5;74", "\u2502", "B", {OOM_BUCKET_BUFFERS, OOM_BUCKET_INPUTS, OOM_BUCKET_COMM, -1}},
	{"saved activations", "#e69f00", "38;5;214", "\u2591", "A", {OOM_BUCKET_SAVED, OOM_BUCKET_AMP, OOM_BUCKET_RECOMPUTE, -1}},
	{"logits and loss", "#cc79a7", "38;5;175", "\u2237", "L", {OOM_BUCKET_LOGITS, -1}},
	{"temporaries", "#bdbdbd", "38;5;250", "\u00b7", "T", {OOM_BUCKET_TEMP, -1}},
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static uint64_t part_bytes(const struct oom_anatomy *a, int phase, int part)
{
	uint64_t sum = 0;

	for (const int *b = parts[part].bucket; *b >= 0; b++)
		sum += a->bucket[phase][*b];
	return sum;
}

static uint64_t outside(const struct oom_eval *e)
{
	return e->used_bytes - e->reserved_bytes;
}

/* The right end of the axis, and a step of 1, 2 or 5 times a power of ten with some eight of
 * them. */
static double scale(const struct oom_target *t, const struct oom_eval *e, double *step)
{
	const double most = (double)(e->used_bytes > t->q.capacity_bytes ? e->used_bytes : t->q.capacity_bytes) /
			    GIB * 1.04;
	const double power = pow(10, floor(log10(most / 8)));

	*step = power * (most / 8 / power > 5 ? 10 : most / 8 / power > 2 ? 5 : most / 8 / power > 1 ? 2 : 1);
	return most;
}

/* ---- SVG ---- */

enum { WIDTH = 980, LEFT = 150, RIGHT = 90, TOP = 76, BAR = 26, GAP = 12 };
#define INK OOM_SVG_INK
#define SOFT "#6b6b6b"
#define CONTEXT "#4d4d4d"
#define HELD "#e6e6e6"
#define LIMIT "#b00020"

/* Returns where it ends. */
static double bar(FILE *out, double y, double per_gib, const struct oom_eval *e,
		  const struct oom_anatomy *a, int phase)
{
	char tip[120], size[32];
	double x = LEFT;
	const double over = (double)outside(e) / GIB * per_gib;

	snprintf(tip, sizeof(tip), "CUDA context, workspaces, NCCL: %s",
		 oom_format_bytes(outside(e), size, sizeof(size)));
	oom_svg_rect(out, x, y, over, BAR, CONTEXT, tip);
	x += over;
	for (int i = 0; i < PARTS; i++) {
		const uint64_t n = part_bytes(a, phase, i);
		const double w = (double)n / GIB * per_gib;

		if (!n)
			continue;
		snprintf(tip, sizeof(tip), "%s: %s", parts[i].name,
			 oom_format_bytes(n, size, sizeof(size)));
		oom_svg_rect(out, x, y, w, BAR, parts[i].fill, tip);
		x += w;
	}
	if ((enum oom_phase)phase == e->peak_phase) {
		const uint64_t held = e->reserved_bytes > e->overall_peak ?
					      e->reserved_bytes - e->overall_peak :
					      0;

		snprintf(tip, sizeof(tip), "held by the allocator beyond that: %s",
			 oom_format_bytes(held, size, sizeof(size)));
		oom_svg_rect(out, x, y, (double)held / GIB * per_gib, BAR, HELD, tip);
		x += (double)held / GIB * per_gib;
	}
	return x;
}

static void label(FILE *out, double x, double y, const struct oom_eval *e, int phase)
{
	char size[32];

	oom_svg_text(out, x + 5, y + BAR * 0.68, 12, OOM_ANCHOR_START, INK, "%s",
		     oom_format_bytes((enum oom_phase)phase == e->peak_phase ?
					      e->used_bytes :
					      e->peak[phase] + outside(e),
				      size, sizeof(size)));
	oom_svg_text(out, LEFT - 8, y + BAR * 0.68, 12, OOM_ANCHOR_END, INK, "%s",
		     oom_phase_str((enum oom_phase)phase));
}

static void legend(FILE *out, double y)
{
	double x = LEFT;

	for (int i = -1; i <= PARTS; i++) {
		const char *name = i < 0      ? "context, workspaces, NCCL" :
				   i == PARTS ? "held by the allocator" :
						parts[i].name;
		const double w = 30 + 6.7 * (double)strlen(name);

		if (x + w > WIDTH - 10) {
			x = LEFT;
			y += 20;
		}
		oom_svg_rect(out, x, y - 10, 12, 12,
			     i < 0	? CONTEXT :
			     i == PARTS ? HELD :
					  parts[i].fill,
			     NULL);
		oom_svg_text(out, x + 17, y, 11.5, OOM_ANCHOR_START, INK, "%s", name);
		x += w;
	}
}

/* A path without its folders. */
static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return oom_shown(slash && slash[1] ? slash + 1 : path);
}

static void title(FILE *out, const struct oom_target *t, const struct oom_judged *j)
{
	const struct oom_plan *p = &j->plan;
	const struct oom_eval *e = &j->eval;
	char used[32], cap[32], head[300];
	const bool fits = j->fits_gpu;
	char precision[32], ckpt[32];

	oom_format_bytes(e->used_bytes, used, sizeof(used));
	oom_format_bytes(t->q.capacity_bytes, cap, sizeof(cap));
	if (t->q.capacity_bytes)
		snprintf(head, sizeof(head), "%s: %s %s of %s on %s", fits ? "fits" : "does not fit", used,
			 oom_used_or_wanted(t, j), cap, t->q.gpu ? oom_shown(t->gpu.name) : "the card");
	else
		snprintf(head, sizeof(head), "%s at the peak", used);
	oom_svg_text(out, 16, 28, 18, OOM_ANCHOR_START, t->q.capacity_bytes && !fits ? LIMIT : INK, "%s",
		     head);
	oom_svg_text(out, 16, 48, 12, OOM_ANCHOR_START, SOFT,
		     "%.80s (%s), batch %lld x accumulation %lld, %lld tokens, %s, checkpointing %s",
		     file_name(t->name), oom_model_type(t->model), (long long)p->micro_batch, (long long)p->grad_accum,
		     (long long)p->seq_len,
		     oom_plan_get(p, oom_knob_find("precision"), precision, sizeof(precision)),
		     oom_plan_get(p, oom_knob_find("grad-ckpt"), ckpt, sizeof(ckpt)));
}

void oom_plot_svg(FILE *out, const struct oom_target *t, const struct oom_judged *j,
		  const struct oom_anatomy *a)
{
	const struct oom_plan *p = &j->plan;
	const struct oom_eval *e = &j->eval;
	/* answers are there where some are generated, an evaluation where the run evaluates */
	const int phases = OOM_PHASES - !oom_phase_occurs(e, OOM_PHASE_ROLLOUTS) -
			   !oom_phase_occurs(e, OOM_PHASE_EVAL);
	const double bottom = TOP + phases * (BAR + GAP);
	double step, most = scale(t, e, &step), per_gib = (WIDTH - LEFT - RIGHT) / most;
	int decimals = step < 0.1 ? 2 : step < 1 ? 1 : 0;
	double end[OOM_PHASES];
	char about[160];

	snprintf(about, sizeof(about), "%.80s: peak of each phase against the card's memory", file_name(t->name));
	oom_svg_begin(out, WIDTH, bottom + 86, about);
	title(out, t, j);
	for (double g = 0; g <= most; g += step) {
		oom_svg_line(out, LEFT + g * per_gib, TOP - 6, LEFT + g * per_gib, bottom,
			     "#dddddd", NULL);
		oom_svg_text(out, LEFT + g * per_gib, bottom + 14, 11, OOM_ANCHOR_MIDDLE, SOFT,
			     "%.*f%s", decimals, g, g + step > most ? " GiB" : "");
	}
	for (int i = 0, row = 0; i < OOM_PHASES; i++)
		if (oom_phase_occurs(e, (enum oom_phase)i))
			end[i] = bar(out, TOP + row++ * (BAR + GAP), per_gib, e, a, i);
	if (t->q.capacity_bytes) {
		const double x = LEFT + (double)t->q.capacity_bytes / GIB * per_gib,
			     m = LEFT + (double)oom_budget(t->q.capacity_bytes, p) / GIB * per_gib;

		if (p->margin > 0)
			oom_svg_line(out, m, TOP - 6, m, bottom, LIMIT, "2 4");
		oom_svg_line(out, x, TOP - 6, x, bottom, LIMIT, NULL);
		oom_svg_text(out, x, TOP - 10, 11, OOM_ANCHOR_MIDDLE, LIMIT, "capacity");
	}
	for (int i = 0, row = 0; i < OOM_PHASES; i++)
		if (oom_phase_occurs(e, (enum oom_phase)i))
			label(out, end[i], TOP + row++ * (BAR + GAP), e, i);
	legend(out, bottom + 40);
	oom_svg_end(out);
}

/* ---- the terminal ---- */

/* n columns of a part. */
static void cells(FILE *out, const struct part *p, int n, bool color, bool unicode)
{
	if (n <= 0)
		return;
	if (color)
		fprintf(out, "\033[%sm", p->color);
	for (int i = 0; i < n; i++)
		fputs(!unicode ? p->letter : color ? "\u2588" : p->shade, out);
	if (color)
		fputs("\033[0m", out);
}

void oom_plot_text(FILE *out, const struct oom_target *t, const struct oom_eval *e,
		   const struct oom_anatomy *a)
{
	const bool color = oom_term_color(), unicode = oom_term_unicode();
	const int width = oom_term_width() < 60 ? 30 : oom_term_width() - 36;
	const uint64_t top = e->overall_peak > t->q.capacity_bytes ? e->overall_peak : t->q.capacity_bytes;
	/* what is left for tensors is the capacity less what stands outside of them at the peak */
	const uint64_t extra = e->used_bytes - e->overall_peak,
		       room = t->q.capacity_bytes > extra ? t->q.capacity_bytes - extra : 0;
	const int limit = t->q.capacity_bytes ? (int)((double)room / (double)top * width + 0.5) : -1;
	char size[32];

	fprintf(out, "\npeak of each phase (allocated)%s\n",
		t->q.capacity_bytes ? ", against what the card leaves for tensors (|)" : "");
	for (int ph = 0; ph < OOM_PHASES; ph++) {
		uint64_t sum = 0;
		int at = 0;

		if (!oom_phase_occurs(e, (enum oom_phase)ph))
			continue;
		fprintf(out, "  %-17s ", oom_phase_str((enum oom_phase)ph));
		for (int i = 0; i < PARTS; i++) {
			int to;

			sum += part_bytes(a, ph, i);
			to = (int)((double)sum / (double)top * width + 0.5);
			/* the limit is drawn between columns, through the bar if need be */
			if (limit >= at && limit < to) {
				cells(out, &parts[i], limit - at, color, unicode);
				fputs("|", out);
				cells(out, &parts[i], to - limit - 1, color, unicode);
			} else {
				cells(out, &parts[i], to - at, color, unicode);
			}
			at = to > at ? to : at;
		}
		for (; at < width; at++)
			fputc(at == limit ? '|' : ' ', out);
		if (limit >= width)
			fputc('|', out);
		fprintf(out, " %10s%s\n", oom_format_bytes(e->peak[ph], size, sizeof(size)),
			(enum oom_phase)ph == e->peak_phase ? " <-" : "");
	}
	fputs(" ", out);
	for (int i = 0; i < PARTS; i++) {
		fputc(' ', out);
		cells(out, &parts[i], 1, color, unicode);
		fprintf(out, " %s", parts[i].name);
		if (i == 3)
			fputs("\n ", out);
	}
	fputc('\n', out);
}

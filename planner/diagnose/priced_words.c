/* What was priced and what it needs, in sentences. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "oomplan/option.h"
#include "oomplan/units.h"
#include "shown.h"
#include "tables.h"

#define GIB 1073741824.0

/* Knobs that a run is told by, and what each is called in the sentence. */
static const struct {
	const char *knob, *called, *none;       /* none: the value that is not worth a word */
} told[] = {
	{"objective", "objective", "sft"}, {"micro-batch", "micro-batch", NULL}, {"seq-len", "seq-len", NULL}, {"lora-r", "LoRA of rank", "0"},
	{"base-weights", "base", "plain"}, {"precision", "precision", NULL}, {"optimizer", "optimizer", NULL}, {"grad-ckpt", "checkpointing", NULL},
	{"loss", "loss", NULL}, {"attn", "attention", "sdpa"}, {"engine", "engine", "hf"}, {"zero", "stage", "0"},
	{"offload-optimizer", "optimizer offloaded to", "none"}, {"offload-params", "weights offloaded to", "none"}, {"gpus", "GPUs", NULL},
};

static void add(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add(char *out, size_t size, const char *fmt, ...)
{
	const size_t n = strlen(out);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out + n, size - n, fmt, ap);
	va_end(ap);
}

/* A key that may stand for several knobs says so by having one of them. */
static const struct oom_reading_knob *read_knob(const struct oom_reading *r, const char *name)
{
	const struct oom_reading_knob *k;

	for (size_t i = 0; (k = oom_reading_knob_at(r, i)) != NULL; i++)
		if (!strcmp(k->name, name))
			return k;
	return NULL;
}

static bool is_said(const struct oom_pricing *p, const char *knob)
{
	const struct oom_reading_knob *const k = read_knob(p->shown->reading, knob);

	return !strcmp(knob, "gpus") ? p->gpus_said : k && k->from_file && !k->open;
}

void oom_priced_given(struct oom_pricing *p)
{
	const struct oom_plan *const plan = &p->m.asked.plan;
	struct oom_priced *const out = p->out;
	const struct oom_shown *const s = p->shown;
	char value[OOM_VALUE_SIZE];
	size_t said = 0, assumed = 0;

	snprintf(out->model, sizeof(out->model), "%.63s", s->model);
	snprintf(out->given, sizeof(out->given), s->last > s->first ? "lines %" PRIu64 " to %" PRIu64 " of the text" : "line %" PRIu64 " of the text", s->first, s->last);
	if (s->beside)
		add(out->given, sizeof(out->given), " and the %s beside it", s->beside > 1 ? "files" : "file");
	add(out->given, sizeof(out->given), ", as %s reads %s: %.80s", oom_reading_framework(s->reading), s->last > s->first ? "them" : "it", s->named);
	if (strcmp(s->named, s->model))
		add(out->given, sizeof(out->given), s->alike ? " (taken to have the shape of %.64s, whose name it begins with)" : " (%.64s)", s->model);
	for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
		const struct oom_option *const knob = oom_knob_find(told[i].knob);

		if (!knob && strcmp(told[i].knob, "objective"))
			continue;
		if (knob)
			oom_plan_get(plan, knob, value, sizeof(value));
		else
			snprintf(value, sizeof(value), "%s", oom_reading_value(s->reading, told[i].knob) ? oom_reading_value(s->reading, told[i].knob) : "sft");
		if (told[i].none && !strcmp(value, told[i].none))
			continue;
		if (is_said(p, told[i].knob))
			add(out->given, sizeof(out->given), "%s %s %s", said++ ? "," : ";", told[i].called, value);
		else
			add(out->assumed, sizeof(out->assumed), "%s%s %s", assumed++ ? ", " : "", told[i].called, value);
	}
}

/* ---- what it needs ---- */

static double gib(uint64_t bytes)
{
	return (double)bytes / GIB;
}

/* The three largest of what is alive at the peak. */
static void largest(const struct oom_eval *e, char *out, size_t size)
{
	bool listed[OOM_BUCKETS] = {false};

	for (int n = 0; n < 3; n++) {
		int most = -1;

		for (int b = 0; b < OOM_BUCKETS; b++)
			if (!listed[b] && (most < 0 || e->bucket[b] > e->bucket[most]))
				most = b;
		if (most < 0 || e->bucket[most] < e->overall_peak / 50)
			return;
		add(out, size, "%s%s %.1f", n ? ", " : "", oom_bucket_str((enum oom_bucket)most), gib(e->bucket[most]));
		listed[most] = true;
	}
}

static uint64_t states(const struct oom_eval *e)
{
	return e->bucket[OOM_BUCKET_PARAMS] + e->bucket[OOM_BUCKET_BUFFERS] + e->bucket[OOM_BUCKET_GRADS] + e->bucket[OOM_BUCKET_OPT];
}

/* What no batch makes smaller, of which a step may hold one part alone: frozen weights have no gradients, and an update
 * within the backward pass keeps none. */
static void add_states(const struct oom_eval *e, char *out, size_t size)
{
	const struct {
		const char *called;
		uint64_t bytes;
	} parts[] = {{"weights", e->bucket[OOM_BUCKET_PARAMS] + e->bucket[OOM_BUCKET_BUFFERS]},
		     {"gradients", e->bucket[OOM_BUCKET_GRADS]},
		     {"optimizer states", e->bucket[OOM_BUCKET_OPT]}};
	const char *named[3];
	uint64_t bytes[3];
	size_t n = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (gib(parts[i].bytes) >= 0.05) {
			named[n] = parts[i].called;
			bytes[n++] = parts[i].bytes;
		}
	for (size_t i = 0; n > 1 && i < n; i++)
		add(out, size, "%s%s (%.1f)", !i ? ": " : i + 1 < n ? ", " : " and ", named[i], gib(bytes[i]));
	if (n == 1)
		add(out, size, ": the %s", named[0]);
	add(out, size, " of %.2f B parameters are %.1f GiB by themselves, which no batch makes smaller", (double)e->total_params / 1e9, gib(states(e)));
}

static void request(struct oom_pricing *p)
{
	const struct oom_comparison *const m = &p->m;
	char *const out = p->out->request;
	const size_t size = sizeof(p->out->request);

	/* of small rows many have one size */
	if (m->matched && (!m->also || p->crash->bytes[OOM_CRASH_TRIED] >= (uint64_t)1 << 30))
		add(out, size, "the request of %s has the size of %s%s%s (%s): %s = %s%s", p->crash->text[OOM_CRASH_TRIED], m->scope, *m->scope ? " " : "", m->row, m->kind, m->formula, m->numbers,
			 m->micro_batch ? ", at another micro-batch than the one given" : "");
	else if (m->implied_tokens && p->crash->part == OOM_PART_LOGITS)
		snprintf(out, size, "as the %s (%s) the request of %s is that of %" PRIu64 " tokens, where a micro-batch of %" PRId64 " x %" PRId64 " has %" PRId64, m->row, m->kind,
			 p->crash->text[OOM_CRASH_TRIED], m->implied_tokens, m->asked.plan.micro_batch, m->asked.plan.seq_len, m->asked.plan.micro_batch * m->asked.plan.seq_len);
}

/* The price says that it fits, and it died: what may be otherwise than the text says. */
static void explain(struct oom_pricing *p)
{
	const struct oom_crash *const c = p->crash;
	const struct oom_eval *const e = &p->m.asked.eval;
	const uint64_t held = c->bytes[OOM_CRASH_ALLOCATED], with = held + c->bytes[OOM_CRASH_TRIED];
	char *const out = p->out->explains;
	const size_t size = sizeof(p->out->explains);
	bool listed;

	if (c->known[OOM_CRASH_ALLOCATED] && (double)held > 1.1 * (double)e->overall_peak) {
		p->out->missing_bytes = with - e->overall_peak;
		snprintf(out, size, "its own tensors held %.1f GiB already, the priced run has %.1f at most: what died is larger than the text shows (longer or larger batches, other settings than these, a second model), or something is kept from step to step",
			 gib(held), gib(e->overall_peak));
	} else if (c->known[OOM_CRASH_ALLOCATED] && !p->out->fits && (double)with > 1.02 * (double)e->overall_peak) {
		p->out->missing_bytes = with - e->overall_peak;
		snprintf(out, size, "at the crash its tensors and the request made %.1f GiB, the priced run has %.1f at most: a change has to save the %.1f GiB between them as well", gib(with),
			 gib(e->overall_peak), gib(p->out->missing_bytes));
	} else if (oom_card_outside(c, &listed) > p->out->capacity_bytes / 10) {
		snprintf(out, size, "%.1f GiB of the card were held by others: end what nvidia-smi lists there, or choose another card", gib(oom_card_outside(c, &listed)));
	} else if (p->out->fits) {
		snprintf(out, size, (double)p->out->used_bytes < 0.7 * (double)p->out->capacity_bytes ?
				 "so another process on the card (nvidia-smi shows it), a longer batch than the text gives, or something that is kept from step to step fills it" :
				 "it fits by little: a longer batch than the text gives, or a setting other than those taken by default, is enough to fill the card");
	}
}

void oom_priced_needs(struct oom_pricing *p)
{
	struct oom_priced *const out = p->out;
	const struct oom_judged *const a = &p->m.asked;
	const struct oom_eval *const e = &a->eval;
	char parts[160] = "";

	out->used_bytes = e->used_bytes;
	out->capacity_bytes = p->q.capacity_bytes;
	out->fits = a->fits_gpu && out->capacity_bytes;
	largest(e, parts, sizeof(parts));
	snprintf(out->needs, sizeof(out->needs), "it needs %.1f GiB", gib(out->used_bytes));
	if (out->capacity_bytes)
		add(out->needs, sizeof(out->needs), " of the card's %.2f", gib(out->capacity_bytes));
	if (out->capacity_bytes && states(e) > out->capacity_bytes)
		add_states(e, out->needs, sizeof(out->needs));
	else
		add(out->needs, sizeof(out->needs), ", most in %s: %s GiB", oom_phase_str(e->peak_phase), parts);
	request(p);
	/* an evaluation gathers what no step makes */
	if (out->capacity_bytes && oom_crash_work(p->crash) != OOM_WORK_EVAL)
		explain(p);
}

/* A crash as JSON, under the column names of a table of traces. */
#include <inttypes.h>
#include <string.h>

#include "diagnose.h"
#include "out.h"

/* Which releases print a message in these words. */
static const char *version(const struct oom_crash *c)
{
	static const struct {
		const char *suffix, *range;
	} eras[] = {{"1.0-cached", "1.0-1.3"},
		    {"1.4-reserved-total", "1.4-1.9"},
		    {"1.10-split-advice", "1.10-2.0"},
		    {"2.1-capacty", "2.1"},
		    {"2.2-capacity", "2.2+"},
		    {"2.5-OutOfMemoryError", "2.5+"},
		    {"2.9-alloc-conf", "2.9+"},
		    {"thc-runtime-error-2", "0.1-0.4"},
		    {"mps-gib", "2.7+"}};

	for (size_t i = 0; i < sizeof(eras) / sizeof(eras[0]); i++)
		if (strstr(c->format, eras[i].suffix))
			return eras[i].range;
	return NULL;
}

static void count_or_null(struct oom_json *j, const char *key, int64_t v)
{
	if (v >= 0)
		oom_json_int(j, key, v);
	else
		oom_json_null(j, key);
}

static void one_number(struct oom_json *j, const struct oom_crash *c, const char *text,
		       enum oom_crash_number n)
{
	if (text)
		oom_json_text(j, text, c->known[n] && *c->text[n] ? c->text[n] : NULL);
	if (c->known[n])
		oom_json_uint(j, oom_crash_number_str(n), c->bytes[n]);
	else
		oom_json_null(j, oom_crash_number_str(n));
}

/* One of the two is printed, the other derived: derived ones have no text. */
static void reserved_text(struct oom_json *j, const struct oom_crash *c)
{
	const char *total = c->text[OOM_CRASH_RESERVED_TOTAL],
		   *idle = c->text[OOM_CRASH_RESERVED_UNALLOCATED];
	char text[80];

	if (*total)
		snprintf(text, sizeof(text), "%s reserved in total", total);
	else
		snprintf(text, sizeof(text), "%s %s", idle,
			 strstr(c->format, "cached") ? "cached" : "reserved but unallocated");
	oom_json_text(j, "reserved_text", *total || *idle ? text : NULL);
}

static void numbers(struct oom_json *j, const struct oom_crash *c)
{
	static const struct {
		enum oom_crash_number number;
		const char *text;
	} columns[] = {{OOM_CRASH_TOTAL, "total_text"},	    {OOM_CRASH_FREE, "free_text"},
		       {OOM_CRASH_PROCESS, "process_text"}, {OOM_CRASH_ALLOCATED, "allocated_text"},
		       {OOM_CRASH_RESERVED_TOTAL, NULL},    {OOM_CRASH_RESERVED_UNALLOCATED, NULL},
		       {OOM_CRASH_PRIVATE_POOL, NULL},	    {OOM_CRASH_ALLOWED, NULL},
		       {OOM_CRASH_OTHER, "other_text"}};
	char pids[OOM_CRASH_PROCESSES * 48] = "";
	size_t n = 0;

	one_number(j, c, "tried_text", OOM_CRASH_TRIED);
	count_or_null(j, "gpu_index", c->gpu_index);
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++)
		one_number(j, c, columns[i].text, columns[i].number);
	reserved_text(j, c);
	for (size_t i = 0; i < c->n_processes && n < sizeof(pids); i++)
		n += (size_t)snprintf(pids + n, sizeof(pids) - n, "%s%" PRId64 ":%" PRIu64,
				      i ? ";" : "", c->process[i].pid, c->process[i].bytes);
	oom_json_text(j, "other_processes", *pids ? pids : NULL);
}

static void causes(struct oom_json *j, const struct oom_crash *c)
{
	const struct oom_verdict *first = &c->cause[0];
	struct oom_crash_answer a;
	char fix[300];

	oom_crash_answer(c, &a);

	oom_json_text(j, "cause", c->n_causes ? oom_cause_info(first->cause)->name : "unknown");
	/* how sure: the text forces it, or it is the best reading */
	oom_json_text(j, "cause_basis",
		      !c->n_causes || first->cause == OOM_CAUSE_UNKNOWN ? "unknown" :
		      first->confidence >= 0.8				? "trace" :
									  "inferred");
	oom_json_text(j, "fix", a.n_fix ? a.fix[0] : NULL);
	oom_json_object(j, "answer");
	oom_json_text(j, "happened", a.happened);
	oom_json_array(j, "evidence");
	for (size_t i = 0; i < a.n_evidence; i++)
		oom_json_text(j, NULL, a.evidence[i]);
	oom_json_end(j);
	oom_json_array(j, "do");
	for (size_t i = 0; i < a.n_fix; i++)
		oom_json_text(j, NULL, a.fix[i]);
	oom_json_end(j);
	oom_json_text(j, "to_be_sure", a.settle);
	oom_json_end(j);
	oom_json_array(j, "causes");
	for (size_t i = 0; i < c->n_causes; i++) {
		const struct oom_cause_info *info = oom_cause_info(c->cause[i].cause);

		oom_json_object(j, NULL);
		oom_json_text(j, "cause", info->name);
		oom_json_real(j, "confidence", c->cause[i].confidence);
		oom_json_text(j, "evidence", c->cause[i].evidence);
		oom_crash_fix(c, c->cause[i].cause, fix, sizeof(fix));
		oom_json_text(j, "fix", *fix ? fix : NULL);
		if (info->rung && a.training)
			oom_json_int(j, "rung", i || !a.rung ? info->rung : a.rung);
		else
			oom_json_null(j, "rung");
		oom_json_text(j, "source", info->source);
		oom_json_end(j);
	}
	oom_json_end(j);
}

/* PyTorch runs on Blackwell since 2.7 (CUDA 12.8, github.com/pytorch/pytorch/releases/tag/v2.7.0), and calls the exception
 * torch.OutOfMemoryError since 2.5: a message under an older name, or in older words, was printed on an older card. */
static bool newer_than_message(const struct oom_gpu *g, const struct oom_crash *c)
{
	return g->compute_capability >= 10 && (!strncmp(c->format, "cuda-1.", 7) || !strncmp(c->format, "cuda-2.1", 8) || !strcmp(c->exception, "torch.cuda.OutOfMemoryError"));
}

/* Of the message's capacity, by what drivers were seen to report, to its two decimals of GiB. */
static bool is_of_size(const struct oom_gpu *g, uint64_t total)
{
	const uint64_t half = UINT64_C(1073741824) / 50;

	/* a part of the host's memory, as large as somebody set it, is no card's size */
	if (g->capacity_high_bytes > g->capacity_bytes / 8 * 9)
		return false;
	return g->capacity_kind != OOM_CAPACITY_MARKETING && g->capacity_bytes <= total + half && total <= g->capacity_high_bytes + half;
}

/* Below 8.0 a card computes no bfloat16. Its marketed size is not asked: of most sizes there are newer cards as well. */
void oom_crash_note_cards(struct oom_crash *c)
{
	struct oom_gpus gpus = {0};
	size_t old = 0, all = 0;

	c->before_bf16 = false;
	if (!c->known[OOM_CRASH_TOTAL] || !oom_crash_of_card(c))
		return;
	if (oom_gpus_load(&gpus, NULL)) {
		oom_out_incomplete();
		return;
	}
	for (size_t i = 0; i < gpus.n; i++) {
		if (!is_of_size(&gpus.items[i], c->bytes[OOM_CRASH_TOTAL]) || newer_than_message(&gpus.items[i], c))
			continue;
		all++;
		old += gpus.items[i].compute_capability > 0 && gpus.items[i].compute_capability < 8;
	}
	c->before_bf16 = all && old == all;
	oom_gpus_release(&gpus);
}

const char *oom_crash_cards(const struct oom_crash *c, char *buf, size_t size)
{
	struct oom_gpus gpus = {0};
	size_t n = 0;

	buf[0] = 0;
	if (!c->known[OOM_CRASH_TOTAL] || !oom_crash_of_card(c))
		return buf;
	if (oom_gpus_load(&gpus, NULL)) {       /* the table is the program's own */
		oom_out_incomplete();
		return buf;
	}
	for (size_t i = 0; i < gpus.n && n < size; i++) {
		const struct oom_gpu *g = &gpus.items[i];

		if (!is_of_size(g, c->bytes[OOM_CRASH_TOTAL]) || newer_than_message(g, c))
			continue;
		n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? "|" : "", g->name);
	}
	oom_gpus_release(&gpus);
	return buf;
}

void oom_crash_json(struct oom_json *j, const struct oom_crash *c, const char *file,
		    uint64_t messages)
{
	char cards[200];

	oom_json_text(j, "file", file);
	oom_json_text(j, "framework", c->framework);
	oom_json_text(j, "program", *c->program ? c->program : NULL);
	oom_json_text(j, "work", oom_crash_work_str(oom_crash_work(c)));
	oom_json_text(j, "version", version(c));
	oom_json_text(j, "format", c->format);
	oom_json_text(j, "exception", *c->exception ? c->exception : NULL);
	count_or_null(j, "rank", c->rank);
	oom_json_uint(j, "messages", messages);
	oom_json_text(j, "traceback", c->traceback ? "yes" : "no");
	oom_json_text(j, "gpu_name", *oom_crash_cards(c, cards, sizeof(cards)) ? cards : NULL);
	oom_json_uint(j, "line", c->line);
	numbers(j, c);
	if (c->ooms || c->retries) {
		oom_json_uint(j, "summary_ooms", c->ooms);
		oom_json_uint(j, "summary_retries", c->retries);
	}
	oom_json_text(j, "phase", oom_crash_phase_str(c->phase));
	oom_json_real(j, "phase_confidence", c->phase_confidence);
	oom_json_text(j, "phase_evidence", *c->phase_evidence ? c->phase_evidence : NULL);
	causes(j, c);
}

void oom_run_json(struct oom_json *j, const struct oom_crash_log *log)
{
	const struct oom_crash_run *const r = &log->run;

	if (log->ranks) {
		oom_json_object(j, "ranks");
		oom_json_uint(j, "died", log->ranks);
		oom_json_int(j, "first", log->first_rank);
		oom_json_uint(j, "first_line", log->first_rank_line);
		oom_json_bool(j, "differ", log->ranks_differ);
		oom_json_end(j);
	} else {
		oom_json_null(j, "ranks");
	}
	if (!r->samples) {
		oom_json_null(j, "run");
		return;
	}
	oom_json_object(j, "run");
	count_or_null(j, "first_step", r->first_step);
	count_or_null(j, "last_step", r->last_step);
	count_or_null(j, "of_steps", r->of_steps ? r->of_steps : -1);
	if (r->has_loss) {
		oom_json_real(j, "first_loss", r->first_loss);
		oom_json_real(j, "last_loss", r->last_loss);
	}
	if (r->memory_samples) {
		oom_json_text(j, "memory", r->memory_key);
		oom_json_bool(j, "memory_in_bytes", r->memory_in_bytes);
		oom_json_uint(j, "memory_samples", r->memory_samples);
		oom_json_real(j, "memory_first", r->memory_first);
		oom_json_real(j, "memory_last", r->memory_last);
		oom_json_real(j, "memory_a_step", r->memory_slope);
		oom_json_real(j, "memory_fit", r->memory_fit);
	}
	count_or_null(j, "longest_tokens", r->longest ? r->longest : -1);
	oom_json_uint(j, "evaluations", r->evaluations);
	oom_json_uint(j, "savings", r->savings);
	oom_json_bool(j, "resumed", r->resumed);
	oom_json_end(j);
}

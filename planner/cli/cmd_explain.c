/* oomplan explain: the ledger, row by row. */
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "commands.h"
#include "oomplan/lore.h"
#include "page.h"
#include "term.h"

struct filter {
	const char *term;
	size_t shown;
};

static bool contains(const char *text, const char *word)
{
	const size_t n = strlen(word);

	for (; *text; text++)
		if (!strncasecmp(text, word, n))
			return true;
	return false;
}

static void show(void *ctx, const struct oom_ledger_row *r)
{
	struct filter *f = ctx;
	char size[32];

	if (f->term && !contains(r->name, f->term) && !contains(r->scope, f->term) &&
	    !contains(r->kind, f->term))
		return;
	if (!strcmp(r->born, "evaluation"))
		return;
	f->shown++;
	printf("%-24s %-22s %-11s %10s x %-4llu = %s\n%25s%s   [%s]\n%25ssource: %s\n",
	       *r->scope ? r->scope : "-", r->kind, r->born,
	       oom_format_bytes(r->bytes, size, sizeof(size)), (unsigned long long)r->count,
	       r->name, "", r->formula, r->numbers, "", r->source);
}

/* `explain M8` needs no model; `explain` alone lists the entries. */
static bool lore(const struct oom_job *job)
{
	const struct oom_lore *l = job->words.n ? oom_lore_find(job->words.items[0]) : NULL;

	if (job->words.n && !l)
		return false;
	if (l) {
		printf("%s: %s\n%s\n  see: %s\n  source: %s\n", l->id, l->title, l->text,
		       l->command, l->source);
		return true;
	}
	if (job->model)
		return false;
	for (size_t i = 0; oom_lore_at(i); i++)
		printf("%-4s %s\n", oom_lore_at(i)->id, oom_lore_at(i)->title);
	printf("oomplan explain M8 tells one of them; with --model, every row of the ledger\n");
	return true;
}

/* "M99": an entry is meant, and no row of a model. */
static bool is_entry(const char *word)
{
	return (*word == 'M' || *word == 'm') && word[1] && !word[1 + strspn(word + 1, "0123456789")];
}

struct args {
	struct oom_job job;
	bool time;
};

static int seconds(const struct oom_target *t)
{
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	struct oom_eval e;
	const enum oom_status st = ev ? oom_evaluate(ev, t->model, &t->q.plan, OOM_EVAL_FAST, &e, &err) :
					OOM_ERR_MEMORY;

	oom_evaluator_free(ev);
	if (st)
		return oom_failed(st, &err);
	oom_report_time_ledger(t, &t->q.plan, &e);
	return 0;
}

static int ledger(const struct oom_job *job, const struct oom_target *t)
{
	struct filter f = {job->words.n ? job->words.items[0] : NULL, 0};
	struct oom_evaluator *ev = oom_evaluator_new();
	struct oom_error err = {{0}};
	enum oom_status st;
	int code = 0;

	printf("b = micro-batch %lld, s = sequence %lld, t = target; sizes are allocator blocks "
	       "(multiples of 512 B)\n"
	       "source of the structure: family %s\n\n",
	       (long long)t->q.plan.micro_batch, (long long)t->q.plan.seq_len,
	       oom_model_family(t->model));
	st = ev ? oom_ledger_each(ev, t->model, &t->q.plan, show, &f, &err) : OOM_ERR_MEMORY;
	if (st)
		code = oom_failed(st, &err);
	else if (f.term && !f.shown)
		code = oom_complain(OOM_EXIT_USAGE, "no row, module or kind contains \"%s\"",
				    f.term);
	oom_evaluator_free(ev);
	return code;
}

static int run(struct oom_job *job)
{
	const struct args *a = (const struct args *)job;
	struct oom_page page;
	struct oom_target t;
	int code;

	oom_page_begin(&page);
	if (lore(job)) {
		oom_page_end(&page);
		return OOM_EXIT_FITS;
	}
	code = !job->model && is_entry(job->words.items[0]) ?
		       oom_complain(OOM_EXIT_USAGE, "the playbook has no entry %s; oomplan explain lists them",
				    oom_shown(job->words.items[0])) :
		       oom_target_open(job, &t, false);
	if (!code) {
		code = a->time ? seconds(&t) : ledger(job, &t);
		oom_target_close(&t);
	}
	oom_page_end(&page);
	return code;
}

static const struct oom_option options[] = {
	{.name = "time",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct args, time),
	 .summary = "the seconds of a step instead of its bytes"},
	OOM_OPTIONS_TARGET, OOM_OPTIONS_COMMON, OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"explain --model config.json logits", "the rows whose name, module or kind holds the word"},
	{"explain --model Llama-3.1-8B --gpu H100-SXM5-80GB --precision bf16 --time", "where a step's seconds go, part by part"},
	{NULL, NULL},
};
const struct oom_command oom_command_explain = {
	.name = "explain",
	.summary = "every row of the ledger: formula, numbers, bytes or seconds, origin",
	.synopsis = "[TERM] --model FILE [options] [knobs]",
	.options = options,
	.knobs = true,
	.as_given = true,
	.words = "TERM",
	.max_words = 1,
	.examples = examples,
	.args_size = sizeof(struct args),
	.run = run,
};

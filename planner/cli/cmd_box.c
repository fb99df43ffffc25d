/* oomplan box: which machine to rent. */
#include <stddef.h>
#include <string.h>

#include "box_out.h"
#include "commands.h"
#include "oomplan/rules.h"
#include "page.h"
#include "term.h"

OOM_WORD_LIST(static, rank_choice, OOM_BOX_RANKS)

struct args {
	struct oom_job job;
	struct oom_list lists;
	const char *providers, *max_price, *tokens, *dataset, *deadline, *budget, *spot_hours, *compare, *plot;
	double headroom, epochs;
	bool spot, own_only;
	int rank;
	int64_t top, max_nodes;         /* 0: not given */
};

/* A positive number and one of the units behind it. */
struct scale {
	const char *unit;
	double times;
};
static const struct scale prices[] = {{"", 1}, {"/h", 1}, {"/hr", 1}, {"/hour", 1}, {NULL, 0}};
static const struct scale budgets[] = {{"", 1},	  {"k", 1e3}, {"M", 1e6},
				       {"B", 1e9}, {"G", 1e9}, {"T", 1e12}, {NULL, 0}};

static const struct scale days[] = {{"", 1},	       {"d", 1},     {"day", 1},	  {"days", 1},
				    {"h", 1.0 / 24}, {"hours", 1.0 / 24}, {"w", 7}, {"week", 7}, {"weeks", 7},
				    {"month", 30},   {"months", 30}, {NULL, 0}};
static const struct scale hours[] = {{"", 1}, {"h", 1}, {"hours", 1}, {"d", 24}, {"days", 24}, {NULL, 0}};

/* The digits in front, as "$1,000", "2_000" and "1e9" have them; where they end. */
static const char *digits_of(const char *text, char *out, size_t size)
{
	size_t n = 0;

	for (text += *text == '$'; *text && n + 1 < size; text++) {
		const size_t run = strspn(text + 1, "0123456789");

		if (strchr("0123456789.", *text))
			out[n++] = *text;
		else if (!((*text == ',' && run == 3) || (*text == '_' && run)) || !n)
			break;
	}
	if ((*text == 'e' || *text == 'E') && n) {
		const size_t sign = text[1] == '+', run = strspn(text + 1 + sign, "0123456789");

		if (run && run < 3 && n + run + 2 < size) {
			n += (size_t)snprintf(out + n, size - n, "e%.*s", (int)run, text + 1 + sign);
			text += 1 + sign + run;
		}
	}
	out[n] = 0;
	return text;
}

static bool figure(const char *text, const struct scale *scales, double *v)
{
	char digits[40];
	const char *const unit = digits_of(text, digits, sizeof(digits));

	for (const struct scale *s = scales; s->unit; s++)
		if (oom_same_word(unit + strspn(unit, " "), s->unit) && !oom_parse_real(digits, v, NULL)) {
			*v *= s->times;
			return *v > 0;
		}
	return false;
}

/* Every option that is a number with a unit; what is wrong is said, and where. */
static int figures(const struct args *a, struct oom_box_query *q)
{
	double dataset = 0;
	const struct {
		const char *name, *text;
		const struct scale *scales;
		double *to;
		const char *expected;
	} all[] = {
		{"max-price", a->max_price, prices, &q->max_usd_h, "dollars per hour, such as 20 or 20/h"},
		{"tokens", a->tokens, budgets, &q->tokens, "a number of tokens, such as 300M or 2B"},
		{"dataset-tokens", a->dataset, budgets, &dataset, "a number of tokens, such as 300M or 2B"},
		{"deadline", a->deadline, days, &q->deadline_days, "days, such as 30d, or 12h, 6w"},
		{"budget", a->budget, budgets, &q->budget_usd, "dollars, such as 5000 or 400k"},
		{"spot-hours", a->spot_hours, hours, &q->spot_hours, "hours, such as 24 or 3d"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].text && !figure(all[i].text, all[i].scales, all[i].to))
			return oom_complain(OOM_EXIT_USAGE, "--%s %s: expected %s", all[i].name, all[i].text,
					    all[i].expected);
	if (a->tokens && a->dataset)
		return oom_complain(OOM_EXIT_USAGE, "--tokens is --dataset-tokens times --epochs: give one of them");
	if (a->own_only && !a->lists.n)
		return oom_complain(OOM_EXIT_USAGE, "--only-boxes leaves no offer without a list of your own: --boxes FILE");
	if (a->epochs > 0 && !a->dataset)
		return oom_complain(OOM_EXIT_USAGE, "--epochs needs --dataset-tokens, the tokens of one of them");
	if (a->dataset)
		q->tokens = dataset * (a->epochs > 0 ? a->epochs : 1);
	if (!(q->tokens > 0) && (a->deadline || a->budget || a->plot || a->compare))
		return oom_complain(OOM_EXIT_USAGE, "--%s needs --tokens, or --dataset-tokens and --epochs",
				    a->deadline ? "deadline" : a->budget ? "budget" : a->plot ? "plot" : "compare");
	if (a->compare && (!strchr(a->compare, ',') || strchr(a->compare, ',') != strrchr(a->compare, ',')))
		return oom_complain(OOM_EXIT_USAGE, "--compare %s: expected two instances, or two plans (\"knob=value ...\"), with a comma between",
				    a->compare);
	return 0;
}

/* The answer in the form that was asked for. */
static int answer(const struct args *a, const struct oom_target *t, const struct oom_offers *offers, const struct oom_boxes *b,
		const struct oom_box_view *view)
{
	const struct oom_job *job = &a->job;

	if (a->compare)
		return oom_box_compare(a->compare, t, offers, b, view->query);
	if (job->json)
		oom_box_json(&t->q.plan, t, offers, b);
	else if (job->csv)
		oom_box_csv(offers, b);
	else if (!oom_emit_prints(job) || !b->fitting)
		oom_box_text(job, t, offers, b, view);
	if (!job->json && !job->csv && !oom_emit_prints(job) && !job->quiet) {
		oom_report_precision(t);
		oom_report_lengths(t);
	}
	return 0;
}

/* On a page where it is for people, and what no form is silent about. */
static int show(const struct args *a, const struct oom_target *t, const struct oom_offers *offers, const struct oom_boxes *b,
		const struct oom_box_view *view)
{
	const bool text = !a->job.json && !a->job.csv && !oom_emit_prints(&a->job);
	struct oom_page page;
	int code;

	if (text)
		oom_page_begin(&page);
	code = answer(a, t, offers, b, view);
	if (text)
		oom_page_end(&page);
	if (!a->compare)
		oom_box_left_out(offers);
	return code;
}

/* Looks for boxes, shows them, and writes what was asked for of the first. */
static int price_and_show(struct oom_job *job, struct oom_target *t, const struct oom_offers *offers,
		  const struct oom_box_query *q, struct oom_box_view *view)
{
	const struct args *a = (const struct args *)job;
	struct oom_error err = {{0}};
	struct oom_boxes b;
	int code;
	const enum oom_status st = oom_boxes_find(offers, t->model, &t->q.plan, q, &b, &err);

	if (st)
		return oom_failed(st, &err);
	code = show(a, t, offers, &b, view);
	if (!code && a->plot && oom_quote_svg(a->plot, offers, &b, q, &err))
		code = oom_complain(OOM_EXIT_INPUT, "%s", err.text);
	if (!code)
		code = b.fitting && !b.items[0].late && !b.items[0].over_budget ? OOM_EXIT_FITS :
										  OOM_EXIT_DOES_NOT_FIT;
	if (b.fitting && job->emit.n)
		code = oom_emit_box(job, offers, &b.items[0], a->spot, code);
	oom_boxes_release(&b);
	return code;
}

static int run(struct oom_job *job)
{
	const struct args *a = (const struct args *)job;
	struct oom_box_query q = {.allow = oom_allowed(&job->allow),
				  .rank = (enum oom_box_rank)a->rank,
				  .providers = a->providers,
				  .gpu = job->gpu,
				  /* "8xH100": machines of eight, as many as --nodes says; "2x8xH100": two of them */
				  .gpus_each = job->card_gpus,
				  .max_nodes = a->max_nodes ? a->max_nodes : 1,
				  .spot = a->spot,
				  .spot_hours = 24,
				  .min_headroom = a->headroom};
	struct oom_box_view view = {a->tokens, 0, a->top ? a->top : 12, NULL};
	struct oom_offers offers = {0};
	struct oom_error err = {{0}};
	struct oom_target t;
	const char *gpu = job->gpu;
	int code = oom_emit_check(job);

	if (!code)
		code = figures(a, &q);
	/* how many GPUs there are is what is asked; what no number of them mends is an error */
	if (!code && oom_plan_check_open(&job->plan, oom_knob_find("gpus"), &err))
		code = oom_complain(OOM_EXIT_USAGE, "%s", err.text);
	if (code)
		return code;
	view.tokens = q.tokens;
	view.query = &q;
	job->any_card = gpu != NULL;
	code = oom_target_open(job, &t, false);
	job->gpu = gpu;
	if (code)
		return code;
	q.nodes = t.q.plan.nodes > 1 ? t.q.plan.nodes : 0;
	q.calibration = t.q.calibration;
	q.by_kind = t.q.by_kind;
	q.confidence = t.q.confidence;
	code = oom_box_offers(&a->lists, a->own_only, &offers);
	if (!code)
		code = oom_box_providers(a->providers, &offers);
	if (!code)
		code = price_and_show(job, &t, &offers, &q, &view);
	oom_offers_release(&offers);
	oom_target_close(&t);
	return code;
}

static const struct oom_option options[] = {
	{.name = "model",
	 .letter = 'm',
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct oom_job, model),
	 .metavar = "FILE",
	 .hint = OOM_HINT_MODEL,
	 .aliases = OOM_MODEL_ALIASES,
	 .summary = "config.json, a folder holding one, a bundled name, or - for standard input"},
	{.name = "gpu",
	 .letter = 'g',
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct oom_job, gpu),
	 .metavar = "NAME",
	 .hint = OOM_HINT_GPU,
	 .summary = "only machines with this card"},
	{.name = "boxes",
	 .kind = OOM_OPTION_LIST,
	 .offset = offsetof(struct args, lists),
	 .metavar = "FILE",
	 .hint = OOM_HINT_FILE,
	 .summary = "more offers: our columns, a SkyPilot vms.csv, gpuhunt's CSV, or JSON of "
		    "gpuhunt or `dstack offer --json`"},
	{.name = "only-boxes",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct args, own_only),
	 .summary = "leave the shipped list out"},
	{.name = "provider",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, providers),
	 .metavar = "NAMES",
	 .summary = "only these, joined by commas"},
	{.name = "max-price",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, max_price),
	 .metavar = "USD",
	 .summary = "dollars per hour for a machine, at most"},
	{.name = "min-headroom",
	 .kind = OOM_OPTION_REAL,
	 .offset = offsetof(struct args, headroom),
	 .metavar = "SHARE",
	 .max = 0.99,
	 .percent = true,
	 .summary = "part of every card that must stay free, such as 5%"},
	{.name = "spot",
	 .kind = OOM_OPTION_FLAG,
	 .offset = offsetof(struct args, spot),
	 .summary = "rank by spot prices"},
	{.name = "max-nodes",
	 .kind = OOM_OPTION_COUNT,
	 .offset = offsetof(struct args, max_nodes),
	 .metavar = "N",
	 .min = 1,
	 .max = 4096,
	 .unset = "1",
	 .summary = "as few machines as do, at most so many; --nodes N: exactly so many"},
	{.name = "rank",
	 .kind = OOM_OPTION_CHOICE,
	 .offset = offsetof(struct args, rank),
	 .metavar = "WORD",
	 .choice = rank_choice,
	 .unset = "tokens",
	 .summary = "by dollars per million tokens, dollars per hour, time, or the fewest changes "
		    "of the science"},
	{.name = "tokens",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, tokens),
	 .metavar = "N",
	 .summary = "of the whole training, such as 2B: days, GPU-hours and dollars of every row"},
	{.name = "dataset-tokens",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, dataset),
	 .metavar = "N",
	 .summary = "tokens of the data, which --epochs goes over"},
	{.name = "epochs",
	 .kind = OOM_OPTION_REAL,
	 .offset = offsetof(struct args, epochs),
	 .metavar = "N",
	 .max = 1e6,
	 .unset = "1",
	 .summary = "times over the data"},
	{.name = "deadline",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, deadline),
	 .metavar = "DAYS",
	 .summary = "such as 30d or 12h: as few machines as are done by then"},
	{.name = "budget",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, budget),
	 .metavar = "USD",
	 .summary = "dollars of the whole training, such as 400k; what costs more is ranked after"},
	{.name = "spot-hours",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, spot_hours),
	 .metavar = "N",
	 .unset = "24",
	 .summary = "with --spot: mean hours until one machine is taken back (a guess)"},
	{.name = "compare",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, compare),
	 .metavar = "A,B",
	 .summary = "two rows beside each other, each an instance (or provider:instance), knobs that make "
		    "another plan (\"lora-r=16 grad-ckpt=full\"), or both; asked: the plan as it is"},
	{.name = "plot",
	 .kind = OOM_OPTION_TEXT,
	 .offset = offsetof(struct args, plot),
	 .metavar = "FILE",
	 .hint = OOM_HINT_FILE,
	 .summary = "days against dollars as an SVG"},
	{.name = "allow",
	 .kind = OOM_OPTION_LIST,
	 .offset = offsetof(struct oom_job, allow),
	 .metavar = "WORDS",
	 .choice = oom_allow_choice,
	 .summary = "changes of the science that may be taken"},
	{.name = "top",
	 .kind = OOM_OPTION_COUNT,
	 .offset = offsetof(struct args, top),
	 .metavar = "N",
	 .min = 1,
	 .max = 10000,
	 .unset = "12",
	 .summary = "rows shown"},
	OOM_OPTIONS_FROM,
	OOM_OPTIONS_EMIT,
	OOM_OPTIONS_DATA,
	OOM_OPTION_JSON,
	OOM_OPTION_CSV("print CSV, one row per offer"),
	OOM_OPTIONS_COMMON,
	OOM_OPTIONS_END,
};
static const struct oom_example examples[] = {
	{"box --model Llama-3.1-8B --precision bf16 --grad-ckpt full --max-price 20/h", "machines for a full fine-tune under 20 dollars per hour"},
	{"box --model Llama-2-70B --lora-r 16 --qlora --precision bf16-amp --emit skypilot", "the cheapest for QLoRA, as a SkyPilot task"},
	{"box --model Llama-3.1-8B --precision bf16 --global-batch 1024 --tokens 20B --deadline 30d --max-nodes 16", "what 20 billion tokens take and cost, done within a month"},
	{NULL, NULL},
};
const struct oom_command oom_command_box = {
	.name = "box",
	.summary = "which machine to rent: cards, host RAM, disk and price",
	.synopsis = "--model FILE [options] [knobs]",
	.options = options,
	.knobs = true,
	.examples = examples,
	.args_size = sizeof(struct args),
	.run = run,
};

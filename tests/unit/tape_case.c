/* The step around a case, its numbers event by event, and the tables they are compared with. */
#include "tape_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks/mixers.h"
#include "families/model.h"
#include "step/program.h"
#include "tape/timeline.h"

enum { MAX_CASES = 400, NUMBERS = 6 };
static const char *const number_names[NUMBERS] = {"eval_peak", "fwd_peak", "kept",
						  "bwd_peak",  "acc_peak", "grads"};
static struct tape_case {
	const char *name;
	uint64_t width;
	tape_case_fn run;
	bool measured;
} cases[MAX_CASES];
static size_t n_cases;
/* what is being run */
static const struct tape_case *now;
static bool train_inputs, train_weights;
static struct oom_model model;
/* what tape_config read last */
static struct oom_model *loaded;
static struct oom_keys loaded_keys;

static void tape_config_forget(void)
{
	if (!loaded)
		return;
	oom_model_free(loaded);
	oom_keys_release(&loaded_keys);
	loaded = NULL;
}

void tape_case_add(const char *name, uint64_t width, tape_case_fn run)
{
	if (n_cases == MAX_CASES)
		abort();
	cases[n_cases++] = (struct tape_case){name, width, run, false};
}

/* Those of CASE_WITHIN; they may be named before their cases are there. */
static struct {
	const char *name;
	int thousandths;
} nearly[20];
static size_t n_nearly;

void tape_case_within(const char *name, int thousandths)
{
	if (n_nearly == sizeof(nearly) / sizeof(nearly[0]))
		abort();
	nearly[n_nearly].name = name;
	nearly[n_nearly++].thousandths = thousandths;
}

static bool agrees(const char *name, int64_t got, int64_t want)
{
	const int64_t off = got < want ? want - got : got - want;

	for (size_t i = 0; i < n_nearly; i++)
		if (!strcmp(nearly[i].name, name))
			return 1000 * off <= want * nearly[i].thousandths;
	return !off;
}

struct oom_arch *tape_arch(void)
{
	return &model.arch;
}

const struct oom_arch *tape_config(const char *json)
{
	static const char *now_loaded;
	struct oom_error err;

	if (loaded && !strcmp(now_loaded, json))
		return &loaded->arch;
	tape_config_forget();
	if (oom_keys_parse(&loaded_keys, json, strlen(json), "config.json", &err) ||
	    oom_model_new(&loaded, &loaded_keys, &err)) {
		printf("%s: %s\n", json, err.text);
		abort();
	}
	now_loaded = json;
	return &loaded->arch;
}

enum oom_dtype tape_dtype(const struct oom_tape *t)
{
	struct oom_param p = {.elems = 1};

	oom_param_policy(t, &p);
	return (enum oom_dtype)p.dt;
}

struct oom_val tape_input(struct oom_tape *t, uint16_t mono, uint64_t width, enum oom_dtype dt)
{
	const bool rg = train_inputs && t->grad && oom_dtype_is_float(dt);
	const int32_t n = rg ? oom_node(t, OOM_NODE_LEAF, "input") : -1;
	struct oom_val x = oom_new(t, "input", mono, (struct oom_dim){width, "width"}, dt);

	return rg ? oom_node_out(t, n, 0, x) : x;
}

struct oom_val tape_in(struct oom_tape *t, uint64_t width)
{
	return tape_input(t, t->m_bs, width, tape_dtype(t));
}

/* ---- the step around a case ---- */

static struct oom_val one_layer(struct oom_tape *t, const void *ctx, uint32_t layer,
				struct oom_val x)
{
	(void)ctx;
	(void)layer;
	x = now->run(t, oom_share(t, x));
	/* so that there is something to keep */
	return t->plan->grad_ckpt != OOM_CKPT_NONE && t->train ? oom_op_unary(t, OOM_SILU, x) : x;
}

static struct oom_val step(struct oom_tape *t, const struct oom_arch *a)
{
	static const int nothing;
	struct oom_val y;

	(void)a;
	t->frozen = !train_weights;
	if (now->width)
		y = oom_layer_alone(t, 0, one_layer, oom_layer_ctx(t, &nothing, sizeof(nothing)),
				    now->width & TAPE_MAP ?
					    tape_input(t, t->m_b, now->width & ~TAPE_MAP,
						       tape_dtype(t)) :
					    tape_in(t, now->width));
	else
		y = now->run(t, oom_none());
	return oom_op_sum_wide(t, oom_op_unary(t, OOM_SCALE, y), OOM_MONO_ONE, D(1));
}

static const struct oom_family family = {.name = "case", .step = step};

/* ---- adding up, event by event ---- */

static int64_t size_of(const struct oom_tape *t, int32_t row)
{
	const struct oom_row *r = &t->rows[row];
	const uint64_t n = oom_mono_now(t, r->mono) * r->width *
			   oom_dtype_bytes((enum oom_dtype)r->dt);

	return (int64_t)((n + 511) / 512 * 512);
}

/* Peak of a stream that starts with `live` bytes; acc: gradients are added to those there are. */
static int64_t play(const struct oom_tape *t, enum oom_stream_id id, bool acc, int64_t *live)
{
	const struct oom_stream *s = &t->streams[id];
	int64_t peak = *live;

	for (size_t i = 0; i < s->n; i++) {
		const int64_t n = s->ev[i] < 0 ? 0 : size_of(t, s->ev[i] >> 2);

		if (s->ev[i] < 0)
			continue;
		switch (s->ev[i] & 3) {
		case OOM_EV_ALLOC: *live += n; break;
		case OOM_EV_GRAD: *live -= acc ? n : 0; break;
		default: *live -= n; break;
		}
		peak = *live > peak ? *live : peak;
	}
	return peak;
}

/* After a step nothing may be held but gradients. */
static bool leaks(const struct oom_tape *t)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		bool grad = false;

		for (size_t k = 0; k < t->n_params; k++)
			grad |= t->params[k].grad == (int32_t)i;
		if (t->refs[i] != (grad ? 1 : 0)) {
			printf("  row %zu (%s) has %d references left\n", i, t->rows[i].name,
			       t->refs[i]);
			return true;
		}
	}
	return false;
}

/* TAPE_CASE=name prints every event of a case, to be held beside PyTorch's. */
static void trace(const struct oom_tape *t)
{
	static const char *const streams[OOM_STREAMS] = {"forward", "backward", "evaluation"};
	const char *wanted = getenv("TAPE_CASE");

	for (int k = 0; wanted && !strcmp(wanted, now->name) && k < OOM_STREAMS; k++) {
		const struct oom_stream *s = &t->streams[k];

		printf("  %s\n", streams[k]);
		for (size_t i = 0; i < s->n; i++)
			if (s->ev[i] >= 0)
				printf("    %s %8lld %s, %s\n", &"+\0-\0-\0g"[(s->ev[i] & 3) * 2],
				       (long long)size_of(t, s->ev[i] >> 2),
				       t->rows[s->ev[i] >> 2].name, t->rows[s->ev[i] >> 2].scope);
	}
}

static void numbers(const struct oom_tape *t, int64_t out[NUMBERS])
{
	int64_t live = 0;

	out[0] = play(t, OOM_STREAM_EVAL, false, &live);
	live = 0;
	out[1] = play(t, OOM_STREAM_FWD, false, &live);
	out[2] = live;
	out[3] = play(t, OOM_STREAM_BWD, false, &live);
	out[5] = live;
	live = out[2];
	out[4] = play(t, OOM_STREAM_BWD, true, &live);
}

/* ---- tables ---- */

static void read_plan(struct oom_plan *plan, char *text, const char *b, const char *s)
{
	struct oom_error err;
	char *save = NULL;

	*plan = oom_plan_default();
	plan->cublas_workspaces = plan->segments_down = plan->sum_buffers = plan->view_sums = 0;
	plan->softmax_product = plan->casts_backwards = 0;              /* the tables' rows are emulated cards', whose kernels are the CPU's */
	plan->micro_batch = atoi(b);
	plan->seq_len = atoi(s);
	for (char *w = strtok_r(text, ";", &save); w; w = strtok_r(NULL, ";", &save)) {
		char *value = strchr(w, '=');
		const struct oom_option *knob;

		*value++ = '\0';
		knob = oom_knob_find(w);
		if (!knob || oom_plan_set(plan, knob, value, &err)) {
			printf("  no knob %s=%s\n", w, value);
			abort();
		}
	}
}

static struct tape_case *find(const char *name)
{
	for (size_t i = 0; i < n_cases; i++)
		if (!strcmp(cases[i].name, name))
			return &cases[i];
	return NULL;
}

/* One row: 0 when all its numbers are met. */
static int row(struct oom_tape *t, char *line)
{
	char whole[400], *field[5 + NUMBERS] = {NULL}, *rest = line;
	int64_t got[NUMBERS];
	struct oom_plan plan;
	struct oom_error err;
	struct tape_case *c;
	int bad = 0;

	snprintf(whole, sizeof(whole), "%.*s", (int)strcspn(line, "\n"), line);
	for (int i = 0; i < 5 + NUMBERS; i++)
		field[i] = strsep(&rest, ",\n");
	c = field[5 + NUMBERS - 1] ? find(field[0]) : NULL;
	if (!c) {
		printf("no case for %s\n", whole);
		return 1;
	}
	c->measured = true;
	now = c;
	read_plan(&plan, field[1], field[3], field[4]);
	train_inputs = strcmp(field[2], "weights") != 0;
	train_weights = strcmp(field[2], "inputs") != 0;
	memset(&model, 0, sizeof(model));
	model.arch.family = &family;
	if (oom_record(t, &model, &plan, false, &err)) {
		printf("%s: %s\n", whole, err.text);
		return 1;
	}
	trace(t);
	numbers(t, got);
	for (int i = 0; i < NUMBERS; i++)
		if (!agrees(field[0], got[i], atoll(field[5 + i]))) {
			printf("%s: %s is %lld (%+lld)\n", bad++ ? "  also" : whole,
			       number_names[i], (long long)got[i],
			       (long long)got[i] - atoll(field[5 + i]));
		}
	if (leaks(t)) {
		printf("%s: leaks\n", whole);
		bad++;
	}
	return bad != 0;
}

int tape_cases_check(const char *table)
{
	struct oom_tape *t = calloc(1, sizeof(*t));
	char path[600], line[600];
	int failed = 0, rows = 0;
	FILE *f;

	snprintf(path, sizeof(path), OOM_SOURCE_ROOT "/tests/unit/measured/%s.csv", table);
	f = fopen(path, "r");
	if (!f || !t) {
		printf("%s cannot be read\n", path);
		return 1;
	}
	while (fgets(line, sizeof(line), f))
		if (*line != '#' && strncmp(line, "case,", 5)) {
			failed += row(t, line);
			rows++;
		}
	for (size_t i = 0; i < n_cases; i++)
		if (!cases[i].measured) {
			printf("%s has no row\n", cases[i].name);
			failed++;
		}
	printf("%s: %zu cases, %d rows, %d failed\n", table, n_cases, rows, failed);
	fclose(f);
	oom_tape_release(t);
	free(t);
	tape_config_forget();
	return failed;
}

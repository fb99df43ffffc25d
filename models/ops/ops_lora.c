/* LoRA as PEFT runs it: over linear layers, 4-bit ones, convolutions and embeddings.  Adapters of bare
 * parameters (stacked experts): blocks/lora_param.c. */
#include <string.h>

#include "adapters.h"
#include "config/arch.h"
#include "kernels.h"

/* ---- linear layers ---- */

struct oom_val oom_lora_through(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	const struct oom_dim r = {l->p[0].width / l->in, "lora_r"};

	x = oom_op_matmul_param(t, "lora_A", x, l->p[0], oom_none(), r);
	return oom_op_matmul_param(t, "lora_B", x, l->p[1], oom_none(), l->out);
}

/* How wide the part of this layer's result is that litgpt copies into zeros, as the matrix of queries, keys and values has
 * adapters for queries and values alone; 0: none is.  The names are those of the families that litgpt has. */
static uint64_t padded_width(const struct oom_tape *t, const struct oom_linear *l)
{
	static const struct {
		const char *name;
		bool joined;
	} of_attention[] = {{"q_proj", false}, {"v_proj", false}, {"qkv_proj", true}, {"query_key_value", true}};
	const uint64_t keys = t->arch->n_kv_heads * t->arch->head_dim;

	for (size_t i = 0; t->plan->lora_zero_pad && i < sizeof(of_attention) / sizeof(of_attention[0]); i++)
		if (!strcmp(l->name, of_attention[i].name))
			return !of_attention[i].joined ? l->out.n : l->out.n > keys ? l->out.n - keys : 0;
	return 0;
}

/* zeros.index_copy(indices, d): autograd saves what is copied (torch's derivatives.yaml, index_copy: expand_as(source)). */
static struct oom_val zero_padded(struct oom_tape *t, struct oom_val d, const struct oom_linear *l)
{
	const uint64_t width = padded_width(t, l);
	struct oom_val source;

	if (!width || !oom_wants_grad(t, d))
		return d;
	source = oom_new(t, "source", d.mono, (struct oom_dim){width * oom_rows_of(t, d.width, l->out.n), NULL},
			 (enum oom_dtype)d.dt);
	d = oom_op_over(t, "index_copy", d);
	if (d.node >= 0)
		oom_node_save(t, d.node, source);
	oom_drop(t, source);
	return d;
}

/* B(A(dropout(x))) * scaling; with magnitudes (DoRA) what is added besides, of which y, the base's
 * result, is a factor. */
static struct oom_val lora_delta(struct oom_tape *t, struct oom_val x, struct oom_val y,
				 const struct oom_linear *l)
{
	struct oom_val d;

	if (l->adapter == &oom_adapter_dora)
		return oom_dora_delta(t, x, y, l);
	d = oom_op_dropout(t, oom_keep(x), t->plan->lora_dropout);
	return oom_op_unary(t, OOM_SCALE, zero_padded(t, oom_lora_through(t, d, l), l));
}

/* The adapter works on a copy of x in its own type, whatever autocast does, and the sum returns to the
 * base layer's (peft/tuners/lora/layer.py, Linear.forward).  x and its copy are locals of the call
 * until it returns. */
static struct oom_val over_any(struct oom_tape *t, struct oom_val x, struct oom_val y,
			       const struct oom_linear *l)
{
	const enum oom_dtype dt = (enum oom_dtype)y.dt;
	struct oom_val c, d;

	c = oom_op_cast(t, oom_keep(x), (enum oom_dtype)l->p[0].dt);
	d = lora_delta(t, c, y, l);
	y = oom_op_add(t, y, d);
	y = oom_op_cast(t, y, dt);
	oom_drop(t, c);
	oom_drop(t, x);
	return y;
}

/* Unsloth's LoRA_W, and LoRA_QKV as three of it (fms_acceleration_foak/fused_ops/unsloth_lora/bnb/fast_lora.py): x and what
 * dropout left of it are kept, no mask and no copy in fp32; the adapter's part is added to the base's result in place. */
static struct oom_val in_one_function(struct oom_tape *t, struct oom_val x, struct oom_val y, const struct oom_linear *l)
{
	const struct oom_dim r = {l->p[0].width / l->in, "lora_r"};
	struct oom_val left = oom_share(t, x), through, sum;
	int32_t n = -1;

	if (t->plan->lora_dropout > 0) {
		oom_drop(t, left);
		left = oom_new_like(t, "dropout", x, (enum oom_dtype)x.dt);
		oom_scratch(t, "dropout mask", x.mono, x.width, OOM_U8);
	}
	through = oom_scratch_hold(t, "lora_A", x.mono, r.n, (enum oom_dtype)x.dt);
	oom_tape_product(t, x, l->in, r.n, true);
	sum = oom_scratch_hold(t, "lora_B", y.mono, y.width, (enum oom_dtype)y.dt);
	oom_tape_product(t, through, r.n, l->out.n, true);
	oom_drop(t, through);
	oom_drop(t, sum);
	if (t->grad && l->p[0].rg) {
		n = oom_node(t, OOM_NODE_FAST_LORA, "LoRA_W");
		oom_node_edge(t, n, y);
		oom_node_edge(t, n, l->p[0]);
		oom_node_edge(t, n, l->p[1]);
		oom_node_save(t, n, x);
		oom_node_save(t, n, left);
		if (n >= 0) {
			t->nodes[n].dt = y.dt;
			t->nodes[n].aux_width = x.width;
			t->nodes[n].aux_mono = x.mono;
		}
		y = oom_node_out(t, n, 0, y);
	}
	oom_drop(t, left);
	oom_drop(t, x);
	return y;
}

/* The same over a 4- or 8-bit layer (peft/tuners/lora/bnb.py, Linear4bit.forward and
 * Linear8bitLt.forward): the result of the former is cloned; only without autocast is x copied to
 * the adapter's type, and what the adapter adds brought back to the result's before it is added. */
static struct oom_val over_quantised(struct oom_tape *t, struct oom_val x, struct oom_val y,
				     const struct oom_linear *l)
{
	const enum oom_lora_over over = oom_quantised_over(t);
	const bool convert = !t->amp, sums = over == OOM_LORA_OVER_SUM || l->adapter == &oom_adapter_dora;
	const enum oom_dtype dt = (enum oom_dtype)y.dt;
	struct oom_val c, d;

	if (oom_kernel_runs(t, OOM_KERNEL_LORA) && l->adapter == &oom_adapter_lora)
		return in_one_function(t, x, y, l);
	if (over == OOM_LORA_OVER_ANY)
		return over_any(t, x, y, l);
	if (over == OOM_LORA_OVER_CLONE)
		y = oom_op_copy(t, "clone", y);
	c = convert ? oom_op_cast(t, oom_keep(x), (enum oom_dtype)l->p[0].dt) : oom_share(t, x);
	d = lora_delta(t, c, y, l);
	if (convert && !sums)
		d = oom_op_cast(t, d, dt);
	y = oom_op_add(t, y, d);
	if (convert && sums)
		y = oom_op_cast(t, y, dt);
	oom_drop(t, c);
	oom_drop(t, x);
	return y;
}

static size_t two_matrices(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			   struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	const uint64_t r = oom_lora_rank(t, name);

	q[0] = (struct oom_adapter_param){"lora_A.weight", r, in, OOM_P_LINEAR};
	q[1] = (struct oom_adapter_param){"lora_B.weight", out, r, OOM_P_LINEAR};
	return 2;
}

static size_t and_magnitudes(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			     struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	const size_t n = two_matrices(t, name, in, out, q);

	q[n] = (struct oom_adapter_param){"lora_magnitude_vector.weight", 0, out, 0};
	return n + 1;
}

const struct oom_adapter oom_adapter_lora = {
	.params = two_matrices, .after = over_any, .after_quantised = over_quantised,
	.embeddings = true, .convolutions = true, .parameters = true,
};
const struct oom_adapter oom_adapter_dora = {
	.params = and_magnitudes, .after = over_any, .after_quantised = over_quantised,
	.embeddings = true, .convolutions = true, .parameters = true,
};

/* ---- embeddings ---- */

/* Where the adapter of a table comes in.  The hook of enable_input_require_grads sits on the base
 * layer of the words' table, so that its result becomes a leaf before the adapter is added: there
 * it waits for oom_input_grads. */
bool oom_word_table(const struct oom_tape *t, const struct oom_param *table)
{
	const uint64_t words = t->arch->input_vocab ? t->arch->input_vocab : t->arch->vocab;

	return table->rows >= words && table->rows - words <= 8;
}

/* The module that looks a table up.  Encoder and decoder each have an embed_tokens of their own
 * (transformers 5), tied to `shared`. */
const char *oom_table_module(const struct oom_param *table)
{
	const char *dot = strrchr(table->scope, '.');

	if (!strcmp(table->scope, "shared"))
		return "embed_tokens";
	return dot ? dot + 1 : table->scope;
}

/* result + (embedding(ids, A^T) B^T) * scaling, back in the result's type; scaled: times the
 * module's own embed_scale too (peft/tuners/lora/layer.py, Embedding.forward).  The transposes are
 * views: autocast casts B's anew, and A's gradient is laid out otherwise than A. */
static struct oom_val add_lookup(struct oom_tape *t, struct oom_val y,
				 const struct oom_embedding_adapter *e, bool scaled)
{
	const enum oom_dtype dt = (enum oom_dtype)y.dt;
	const struct oom_dim r = {e->a.width / e->rows, "lora_r"};
	struct oom_val after, b = e->b, d;

	if (!oom_is_none(e->m))
		return oom_dora_lookup(t, y, e);
	after = oom_embedding_lookup(t, e->a, e->ids, r);
	if (t->amp)
		b = oom_op_cast(t, b, (enum oom_dtype)t->amp_dt);
	d = oom_op_matmul_param(t, "lora_embedding_B", oom_keep(after), b, oom_none(), e->out);
	d = oom_op_unary(t, OOM_SCALE, d);
	if (scaled)
		d = oom_op_unary(t, OOM_SCALE, d);
	y = oom_op_add(t, y, oom_keep(d));
	y = oom_op_cast(t, y, dt);
	oom_drop(t, d);
	oom_drop(t, after);
	return y;
}

struct oom_val oom_lora_embedding(struct oom_tape *t, struct oom_val y, struct oom_val w,
				  struct oom_val ids, struct oom_dim dim)
{
	struct oom_param *table = w.node <= -2 ? &t->params[-2 - w.node] : NULL;
	const uint64_t r = table ? oom_lora_rank(t, oom_table_module(table)) : 0;
	const char *scope = t->scope;
	struct oom_embedding_adapter e = {.rows = table ? table->rows : 0, .out = dim};

	if (!table || !oom_plan_adapted(t->plan) ||
	    !oom_lora_takes(t, table, oom_table_module(table), false))
		return y;
	if (!oom_adapter_of(t->plan)->embeddings) {
		oom_tape_fail(t, OOM_ERR_INVALID, "%s: this kind of adapter is for linear layers: PEFT refuses an "
			      "embedding", oom_table_module(table));
		return y;
	}
	t->scope = table->scope;
	e.ids = oom_share(t, ids);
	e.a = oom_adapter_weight(t, "lora_embedding_A", r, e.rows, OOM_P_LORA);
	e.b = oom_adapter_weight(t, "lora_embedding_B", dim.n, r, OOM_P_LORA);
	e.m = oom_none();
	if (oom_plan_adapter(t->plan) == OOM_ADAPTER_DORA)
		e.m = oom_adapter_weight(t, "lora_magnitude_vector.weight", 0, dim.n, OOM_P_LORA);
	if (oom_word_table(t, &t->params[-2 - w.node]) && oom_is_none(t->adapter.a)) {
		e.of = y;
		t->adapter = e;
	} else {
		y = add_lookup(t, y, &e, false);
	}
	t->scope = scope;
	return y;
}

void oom_lora_idle_table(struct oom_tape *t, struct oom_val w, const char *module)
{
	struct oom_param *table = w.node <= -2 ? &t->params[-2 - w.node] : NULL;
	const uint8_t known = table ? table->adapted : 0;
	uint64_t rows, cols;
	bool takes;

	if (!table || !oom_plan_adapted(t->plan) || !oom_adapter_of(t->plan)->embeddings)
		return;
	/* what is found out here is of this module, not of those that look the same weight up */
	table->adapted = 0;
	takes = oom_lora_takes(t, table, module, false);
	table->adapted = known;
	if (!takes)
		return;
	rows = table->rows;
	cols = table->cols;
	oom_adapter_weight(t, "lora_embedding_A", oom_lora_rank(t, module), rows, OOM_P_LORA | OOM_P_UNUSED);
	oom_adapter_weight(t, "lora_embedding_B", cols, oom_lora_rank(t, module), OOM_P_LORA | OOM_P_UNUSED);
	if (oom_plan_adapter(t->plan) == OOM_ADAPTER_DORA)
		oom_adapter_weight(t, "lora_magnitude_vector.weight", 0, cols, OOM_P_LORA | OOM_P_UNUSED);
}

struct oom_val oom_lora_embedded(struct oom_tape *t, struct oom_val x)
{
	const struct oom_embedding_adapter e = t->adapter;

	if (oom_is_none(e.a))
		return x;
	t->adapter = (struct oom_embedding_adapter){.a = oom_none()};
	return add_lookup(t, x, &e, x.sto != e.of.sto);
}

/* ---- convolutions ---- */

struct oom_val oom_op_conv_adapted(struct oom_tape *t, const char *name, struct oom_val x,
				   uint64_t groups, bool has_bias, struct oom_dim out)
{
	const uint64_t in = x.width, r = oom_lora_rank(t, name);
	const struct oom_dim rank = {r, "lora_r"};
	const char *scope = t->scope;
	const uint16_t mono = x.mono;
	struct oom_val y = oom_op_conv(t, name, oom_keep(x), out.n, in / groups, has_bias, mono, out),
		       a, b, c;
	const enum oom_dtype dt = (enum oom_dtype)y.dt;

	if (!oom_lora_adapts(t, name, OOM_LORA_NOT_ALL) || !oom_adapter_of(t->plan)->convolutions) {
		oom_done(t, x);
		return y;
	}
	if (r % groups && !t->status)
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s: PEFT adapts convolutions of %llu groups only with ranks they "
			      "divide, lora-r is %llu", name, (unsigned long long)groups,
			      (unsigned long long)r);
	t->scope = name;
	a = oom_adapter_weight(t, "lora_A.weight", r, in, OOM_P_LORA);
	b = oom_adapter_weight(t, "lora_B.weight", out.n, r / groups, OOM_P_LORA);
	c = oom_op_cast(t, x, (enum oom_dtype)a.dt);
	a = oom_op_conv_param(t, oom_op_dropout(t, oom_keep(c), t->plan->lora_dropout), a,
			      oom_none(), mono, rank);
	b = oom_op_unary(t, OOM_SCALE, oom_op_conv_param(t, a, b, oom_none(), mono, out));
	y = oom_op_cast(t, oom_op_add(t, y, b), dt);
	oom_drop(t, c);
	t->scope = scope;
	return y;
}

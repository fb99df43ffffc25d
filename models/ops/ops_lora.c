/* LoRA as PEFT runs it: over linear layers, 4-bit ones, convolutions and embeddings.  Adapters of bare
 * parameters (stacked experts): blocks/lora_param.c. */
#include <string.h>

#include "config/arch.h"
#include "ops.h"

/* ---- linear layers ---- */

/* B(A(dropout(x))) * scaling */
static struct oom_val lora_delta(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	const struct oom_dim r = {(uint64_t)t->plan->lora_r, "lora_r"};
	struct oom_val d;

	d = oom_op_dropout(t, oom_keep(x), t->plan->lora_dropout);
	d = oom_op_matmul_param(t, "lora_A", d, l->a, oom_none(), r);
	d = oom_op_matmul_param(t, "lora_B", d, l->b, oom_none(), l->out);
	return oom_op_unary(t, OOM_SCALE, d);
}

/* The adapter works on an fp32 copy of x, whatever autocast does, and the sum returns to the base
 * layer's type (peft/tuners/lora/layer.py, Linear.forward).  x and its copy are locals of the call
 * until it returns. */
struct oom_val oom_lora(struct oom_tape *t, struct oom_val x, struct oom_val y,
			const struct oom_linear *l)
{
	const enum oom_dtype dt = (enum oom_dtype)y.dt;
	struct oom_val c;

	c = oom_op_cast(t, oom_keep(x), OOM_F32);
	y = oom_op_add(t, y, lora_delta(t, c, l));
	y = oom_op_cast(t, y, dt);
	oom_drop(t, c);
	oom_drop(t, x);
	return y;
}

/* The same over a 4-bit layer (peft/tuners/lora/bnb.py, Linear4bit.forward): the base's result is
 * cloned; only without autocast is x copied to fp32, and what the adapter adds brought back to the
 * result's type before it is added. */
struct oom_val oom_lora_4bit(struct oom_tape *t, struct oom_val x, struct oom_val y,
			     const struct oom_linear *l)
{
	struct oom_val c, d;

	y = oom_op_copy(t, "clone", y);
	c = t->amp ? oom_share(t, x) : oom_op_cast(t, oom_keep(x), OOM_F32);
	d = lora_delta(t, c, l);
	if (!t->amp)
		d = oom_op_cast(t, d, (enum oom_dtype)y.dt);
	y = oom_op_add(t, y, d);
	oom_drop(t, c);
	oom_drop(t, x);
	return y;
}

/* ---- embeddings ---- */

/* Where the adapter of a table comes in.  The hook of enable_input_require_grads sits on the base
 * layer of the words' table, so that its result becomes a leaf before the adapter is added: there
 * it waits for oom_input_grads. */
static bool is_word_table(const struct oom_tape *t, const struct oom_param *table)
{
	return table->rows == t->arch->vocab;
}

/* The module that looks a table up.  Encoder and decoder each have an embed_tokens of their own
 * (transformers 5), tied to `shared`. */
static const char *module_of(const struct oom_param *table)
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
	const struct oom_dim r = {(uint64_t)t->plan->lora_r, "lora_r"};
	struct oom_val after, b = e->b, d;

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
	const struct oom_param *table = w.node <= -2 ? &t->params[-2 - w.node] : NULL;
	const uint64_t r = (uint64_t)t->plan->lora_r;
	const char *scope = t->scope;
	struct oom_embedding_adapter e = {.rows = table ? table->rows : 0, .out = dim};

	if (!table || !r || !oom_lora_names(t, module_of(table)))
		return y;
	t->scope = table->scope;
	e.ids = oom_share(t, ids);
	e.a = oom_param(t, "lora_embedding_A", r, e.rows, OOM_P_LORA);
	e.b = oom_param(t, "lora_embedding_B", dim.n, r, OOM_P_LORA);
	if (is_word_table(t, &t->params[-2 - w.node]) && oom_is_none(t->adapter.a)) {
		e.of = y;
		t->adapter = e;
	} else {
		y = add_lookup(t, y, &e, false);
	}
	t->scope = scope;
	return y;
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
	const uint64_t in = x.width, r = (uint64_t)t->plan->lora_r;
	const struct oom_dim rank = {r, "lora_r"};
	const char *scope = t->scope;
	const uint16_t mono = x.mono;
	struct oom_val y = oom_op_conv(t, name, oom_keep(x), out.n, in / groups, has_bias, mono, out),
		       a, b, c;
	const enum oom_dtype dt = (enum oom_dtype)y.dt;

	if (!oom_lora_adapts(t, name, OOM_LORA_NOT_ALL)) {
		oom_done(t, x);
		return y;
	}
	if (r % groups && !t->status)
		oom_tape_fail(t, OOM_ERR_INVALID,
			      "%s: PEFT adapts convolutions of %llu groups only with ranks they "
			      "divide, lora-r is %llu", name, (unsigned long long)groups,
			      (unsigned long long)r);
	t->scope = name;
	a = oom_param(t, "lora_A.weight", r, in, OOM_P_LORA);
	b = oom_param(t, "lora_B.weight", out.n, r / groups, OOM_P_LORA);
	c = oom_op_cast(t, x, OOM_F32);
	a = oom_op_conv_param(t, oom_op_dropout(t, oom_keep(c), t->plan->lora_dropout), a,
			      oom_none(), mono, rank);
	b = oom_op_unary(t, OOM_SCALE, oom_op_conv_param(t, a, b, oom_none(), mono, out));
	y = oom_op_cast(t, oom_op_add(t, y, b), dt);
	oom_drop(t, c);
	t->scope = scope;
	return y;
}

/* VB-LoRA: LoRA's two matrices are put together in every call out of pieces, each a mixture of a few vectors of a bank that
 * all layers share (peft 0.20, tuners/vblora/layer.py). */
#include "adapters.h"
#include "config/arch.h"
#include "tape/frame.h"

void oom_bank_made(struct oom_tape *t)
{
	const struct oom_plan *p = t->plan;
	const char *scope = t->scope;

	if (!oom_plan_adapted(p) || !oom_adapter_of(p)->banked || t->beside.running)
		return;
	t->scope = "vblora_vector_bank";
	t->bank = oom_param(t, "weight", (uint64_t)p->bank_vectors, (uint64_t)p->bank_length, OOM_P_LORA | OOM_P_LINEAR);
	t->scope = scope;
}

/* update_layer: a row of logits, one for every vector, for each piece of the two matrices. */
static size_t params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
		     struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	const uint64_t r = (uint64_t)t->plan->lora_r, n = (uint64_t)t->plan->bank_vectors,
		       length = (uint64_t)t->plan->bank_length;

	(void)name;
	q[0] = (struct oom_adapter_param){"vblora_logits_A", r * (in / length), n, OOM_P_LINEAR};
	q[1] = (struct oom_adapter_param){"vblora_logits_B", (out / length) * r, n, OOM_P_LINEAR};
	return 2;
}

/* _get_low_rank_matrix: of each row of logits the largest, their softmax, and the sum of as many vectors. */
static struct oom_val pieces(struct oom_tape *t, struct oom_val logits)
{
	const uint64_t k = (uint64_t)t->plan->bank_topk, length = (uint64_t)t->plan->bank_length,
		       picked = logits.width / (uint64_t)t->plan->bank_vectors * k;
	const struct oom_dim some = {picked, "pieces * topk"}, vectors = {picked * length, "pieces * topk * vector_length"},
			     whole = {picked / k * length, "pieces * vector_length"};
	struct oom_frame f = {.t = t};
	struct oom_val rows, top, weights, found;

	rows = oom_name(&f, oom_scratch_hold(t, "indices", OOM_MONO_ONE, picked, OOM_I64));
	top = oom_name(&f, oom_op_gather(t, "topk", oom_keep(logits), rows, OOM_MONO_ONE, some));
	weights = oom_name(&f, oom_op_softmax(t, top, false));
	found = oom_op_gather(t, "index", oom_keep(t->bank), rows, OOM_MONO_ONE, vectors);
	return oom_leave(&f, oom_op_sum(t, oom_op_mul(t, weights, found), OOM_MONO_ONE, whole));
}

/* result + B(A(dropout(x))), x in the bank's type and the sum in that of what came in (Linear.forward).  B's pieces lie by rank and are turned, a copy. */
static struct oom_val add(struct oom_tape *t, struct oom_val x, struct oom_val y, const struct oom_linear *l)
{
	const uint64_t length = (uint64_t)t->plan->bank_length;
	const struct oom_dim r = {(uint64_t)t->plan->lora_r, "vblora_r"};
	const enum oom_dtype given = (enum oom_dtype)x.dt;
	struct oom_frame f = {.t = t};
	struct oom_val a, b, c, d;

	if (oom_is_none(t->bank) || l->in % length || l->out.n % length) {
		if (!t->status)
			oom_tape_fail(t, OOM_ERR_INVALID, oom_is_none(t->bank) ?
				      "peft-type: the bank of this kind is not priced for this model type" :
				      "vector-length: PEFT refuses VB-LoRA of a layer whose widths it does not divide (%s)", l->name);
		oom_drop(t, x);
		return y;
	}
	a = oom_name(&f, pieces(t, l->p[0]));
	b = oom_name(&f, oom_op_copy(t, "clone", pieces(t, l->p[1])));
	c = oom_name(&f, oom_op_cast(t, oom_keep(x), (enum oom_dtype)t->bank.dt));
	d = oom_op_dropout(t, oom_keep(c), t->plan->lora_dropout);
	d = oom_op_matmul_param(t, "vblora_A", d, a, oom_none(), r);
	d = oom_op_matmul_param(t, "vblora_B", d, b, oom_none(), l->out);
	y = oom_op_cast(t, oom_op_add(t, y, d), given);
	y = oom_leave(&f, y);
	oom_drop(t, x);
	return y;
}

const struct oom_adapter oom_adapter_bank = {.params = params, .after = add, .banked = true};

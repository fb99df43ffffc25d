/* Adapters beside the weight: AdaLoRA, (IA)^3, VeRA, MiSS, OFT.  Each as peft 0.20 writes its forward;
 * x and what a call names live until it returns. */
#include <string.h>

#include "adapters.h"
#include "config/arch.h"

/* ---- what several do ---- */

static struct oom_val in_own_type(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	return oom_op_cast(t, oom_keep(x), (enum oom_dtype)l->p[0].dt);
}

/* result + d, in the result's type */
static struct oom_val added(struct oom_tape *t, struct oom_val y, struct oom_val d)
{
	const enum oom_dtype dt = (enum oom_dtype)y.dt;

	return oom_op_cast(t, oom_op_add(t, y, d), dt);
}

/* A view of a leaf, or of a buffer: autocast's cache does not know it. */
static struct oom_val cast_view(struct oom_tape *t, struct oom_val w)
{
	return t->amp ? oom_op_cast(t, w, (enum oom_dtype)t->amp_dt) : w;
}

/* ---- AdaLoRA ---- */

/* PEFT moves what it makes to the base's type; where that is none of integers, nor fp32, a tensor is
 * made of the parameter `ranknum`, and of the tensor one that trains (nn.ParameterDict). */
static size_t adalora_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			     struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	const uint64_t r = (uint64_t)t->plan->lora_r;
	const bool moved = oom_plan_stores(t->plan) != OOM_FP32 && !oom_plan_quantised(t->plan);

	(void)name;
	q[0] = (struct oom_adapter_param){"lora_A", r, in, OOM_P_LINEAR};
	q[1] = (struct oom_adapter_param){"lora_B", out, r, OOM_P_LINEAR};
	q[2] = (struct oom_adapter_param){"lora_E", r, 1, OOM_P_LINEAR};
	q[3] = (struct oom_adapter_param){"ranknum", 0, 1, moved ? 0 : OOM_P_FROZEN | OOM_P_FP32};
	return 4;
}

/* result += (dropout(x) @ (A * E)^T @ B^T) * scaling / ranknum (tuners/adalora/layer.py, SVDLinear) */
static struct oom_val adalora(struct oom_tape *t, struct oom_val x, struct oom_val y,
			      const struct oom_linear *l)
{
	const struct oom_dim r = {l->p[0].width / l->in, "init_r"};
	struct oom_val c = in_own_type(t, x, l), d, ranks, ae;

	ranks = oom_op_unary(t, OOM_ADD_SCALAR, oom_keep(l->p[3]));
	d = oom_op_dropout(t, oom_keep(c), t->plan->lora_dropout);
	ae = oom_op_mul(t, l->p[0], l->p[2]);
	d = oom_op_matmul_param(t, "A * E", d, ae, oom_none(), r);
	d = oom_op_matmul_param(t, "lora_B", d, cast_view(t, l->p[1]), oom_none(), l->out);
	d = oom_op_div(t, oom_op_unary(t, OOM_SCALE, d), oom_keep(ranks));
	y = oom_op_add_inplace(t, y, d);
	oom_drop(t, ranks);
	oom_drop(t, c);
	oom_drop(t, x);
	return y;
}

const struct oom_adapter oom_adapter_adalora = {.params = adalora_params, .after = adalora,
						 .regularised = true};

/* ---- (IA)^3 ---- */

/* The layers whose input is scaled instead of their result: TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_
 * MODULES_MAPPING of peft/utils/constants.py, by last words. */
static bool feeds_forward(const char *name)
{
	static const char *const words[] = {"down_proj", "wo", "c_proj", "dense_4h_to_h", "dense",
					    "fc2", "fc_out", "w2", NULL};

	for (size_t i = 0; words[i]; i++)
		if (!strcmp(words[i], name))
			return true;
	return false;
}

static size_t ia3_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			 struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	(void)t;
	if (feeds_forward(name))
		q[0] = (struct oom_adapter_param){"ia3_l", 1, in, OOM_P_LINEAR};
	else
		q[0] = (struct oom_adapter_param){"ia3_l", out, 1, OOM_P_LINEAR};
	return 1;
}

/* (x * (1 * l)) in x's type (tuners/ia3/layer.py, Linear.forward) */
static struct oom_val scaled(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val by = oom_op_unary(t, OOM_SCALE, oom_keep(l->p[0]));

	return oom_op_cast(t, oom_op_mul(t, x, by), dt);
}

static struct oom_val ia3_before(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	const enum oom_dtype dt = (enum oom_dtype)x.dt;
	struct oom_val c;

	if (!feeds_forward(l->name))
		return x;
	c = oom_op_cast(t, x, (enum oom_dtype)l->p[0].dt);
	return oom_op_cast(t, scaled(t, c, l), dt);
}

static struct oom_val ia3_after(struct oom_tape *t, struct oom_val x, struct oom_val y,
				const struct oom_linear *l)
{
	oom_drop(t, x);
	return feeds_forward(l->name) ? y : scaled(t, y, l);
}

const struct oom_adapter oom_adapter_ia3 = {
	.params = ia3_params, .before = ia3_before, .after = ia3_after};

/* ---- VeRA ---- */

static size_t vera_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			  struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	(void)name;
	(void)in;
	q[0] = (struct oom_adapter_param){"vera_lambda_b", 0, out, 0};
	q[1] = (struct oom_adapter_param){"vera_lambda_d", 0, (uint64_t)t->plan->lora_r, 0};
	return 2;
}

/* A slice of a shared matrix. */
static struct oom_val shared_slice(uint64_t n, enum oom_dtype dt)
{
	return (struct oom_val){.sto = -1, .node = -1, .mono = OOM_MONO_ONE, .width = n, .dt = (uint8_t)dt};
}

/* result + b * (B (d * (A dropout(x)))) (tuners/vera/layer.py, Linear.forward) */
static struct oom_val vera(struct oom_tape *t, struct oom_val x, struct oom_val y,
			   const struct oom_linear *l)
{
	const uint64_t n = l->p[1].width;
	const struct oom_dim r = {n, "vera_r"};
	struct oom_val c = in_own_type(t, x, l), d;

	d = oom_op_dropout(t, oom_keep(c), t->plan->lora_dropout);
	d = oom_op_matmul_param(t, "vera_A", d, shared_slice(n * l->in, OOM_F32), oom_none(), r);
	d = oom_op_mul(t, l->p[1], d);
	d = oom_op_matmul_param(t, "vera_B", d, shared_slice(n * l->out.n, OOM_F32), oom_none(), l->out);
	y = added(t, y, oom_op_mul(t, l->p[0], d));
	oom_drop(t, c);
	oom_drop(t, x);
	return y;
}

const struct oom_adapter oom_adapter_vera = {.params = vera_params, .after = vera, .shared = true};

/* ---- MiSS ---- */

static size_t miss_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			  struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	(void)name;
	(void)in;
	q[0] = (struct oom_adapter_param){"miss_block", (uint64_t)t->plan->lora_r, out, OOM_P_LINEAR};
	return 1;
}

/* result + sum over every r-th of dropout(x) @ block (tuners/miss/layer.py, MissLinear.forward); what
 * is wanting to a multiple of r is padded. */
static struct oom_val miss(struct oom_tape *t, struct oom_val x, struct oom_val y,
			   const struct oom_linear *l)
{
	const uint64_t n = l->p[0].width / l->out.n, rows = oom_rows_of(t, x.width, l->in);
	struct oom_val c = oom_share(t, x), d;

	if (l->in % n)
		c = oom_op_expand_copy(t, c, x.mono,
				       (struct oom_dim){(l->in / n + 1) * n * rows, x.text});
	c = oom_op_cast(t, c, (enum oom_dtype)l->p[0].dt);
	d = oom_op_dropout(t, oom_keep(c), t->plan->lora_dropout);
	d = oom_op_sum(t, d, x.mono, (struct oom_dim){n * rows, "miss_r"});
	d = oom_op_matmul_param(t, "miss_block", d, l->p[0], oom_none(), l->out);
	y = added(t, y, d);
	oom_drop(t, c);
	oom_drop(t, x);
	return y;
}

const struct oom_adapter oom_adapter_miss = {.params = miss_params, .after = miss};

/* ---- OFT ---- */

/* The block size that divides a layer's width and is nearest (tuners/oft/layer.py,
 * adjust_oft_parameters). */
static uint64_t block_of(const struct oom_plan *p, uint64_t in)
{
	const uint64_t want = (uint64_t)p->lora_r;
	uint64_t high = want, low = want;

	if (want >= in)
		return in;
	while (high <= in && in % high)
		high++;
	while (low > 1 && in % low)
		low--;
	return want - low <= high - want ? low : high;
}

static size_t oft_params(const struct oom_tape *t, const char *name, uint64_t in, uint64_t out,
			 struct oom_adapter_param q[OOM_ADAPTER_PARAMS])
{
	const uint64_t k = block_of(t->plan, in);

	(void)name;
	(void)out;
	q[0] = (struct oom_adapter_param){"oft_R.weight", in / k, k * (k - 1) / 2, OOM_P_LINEAR};
	return 1;
}

/* Blocks of a rotation by Cayley's transform in five terms of Neumann's series (_cayley_batch): three
 * products of the skew matrix keep it and its powers.  In place on the identity. */
static struct oom_val rotation(struct oom_tape *t, const struct oom_linear *l, uint64_t k)
{
	const struct oom_dim n = {l->in * k, "d_in * oft_block_size"};
	const enum oom_dtype dt = (enum oom_dtype)l->p[0].dt;
	struct oom_val q, r, power, next;

	q = oom_op_expand_copy(t, oom_keep(l->p[0]), OOM_MONO_ONE, n);
	q = oom_op_add_into(t, oom_keep(q), q, OOM_MONO_ONE, n);
	r = oom_scratch_hold(t, "identity", OOM_MONO_ONE, n.n, dt);
	r = oom_op_add_inplace(t, r, oom_op_unary(t, OOM_SCALE, oom_keep(q)));
	power = oom_op_bmm(t, "Q^2", oom_keep(q), oom_keep(q), OOM_MONO_ONE, n, k);
	for (int i = 0; i < 2; i++) {
		r = oom_op_add_inplace(t, r, oom_op_cast(t, oom_keep(power), dt));
		next = oom_op_bmm(t, "Q^n", power, oom_keep(q), OOM_MONO_ONE, n, k);
		power = next;
	}
	r = oom_op_add_inplace(t, r, oom_op_cast(t, power, dt));
	oom_drop(t, q);
	return r;
}

/* x in blocks, each turned (OFTRotationModule.forward, Linear.forward): what einsum makes lies by
 * blocks and is copied. */
static struct oom_val oft(struct oom_tape *t, struct oom_val x, const struct oom_linear *l)
{
	const enum oom_dtype given = (enum oom_dtype)x.dt, own = (enum oom_dtype)l->p[0].dt;
	const uint64_t k = block_of(t->plan, l->in);
	const struct oom_dim wide = {x.width, x.text};
	struct oom_val c = oom_op_cast(t, x, own), r = rotation(t, l, k), y, z;

	for (int i = 0; i < 2; i++)             /* rows and columns of the triangle */
		oom_buffer(t, k * (k - 1) / 2, OOM_I64);

	y = oom_op_bmm(t, "rotated", oom_keep(c), oom_keep(r), c.mono, wide, k);
	z = oom_op_cast(t, oom_op_copy(t, "clone", oom_keep(y)), own);
	oom_drop(t, y);
	oom_drop(t, r);
	oom_drop(t, c);
	return oom_op_cast(t, z, given);
}

/* The result has the input's type, under autocast too. */
static struct oom_val oft_after(struct oom_tape *t, struct oom_val x, struct oom_val y, const struct oom_linear *l)
{
	const enum oom_dtype given = (enum oom_dtype)x.dt;

	(void)l;
	oom_drop(t, x);
	return oom_op_cast(t, y, given);
}

const struct oom_adapter oom_adapter_oft = {.params = oft_params, .before = oft, .after = oft_after};

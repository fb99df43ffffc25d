/* What a weight in few bits takes in each format, and what its library makes of it in the forward pass.  bitsandbytes
 * 0.49: functional.py, autograd/_functions.py, nn/modules.py.  GPTQModel's Triton layers, which its auto_trainable back
 * end takes for GPTQ and AWQ, and HQQ's PyTorch back end: from their sources, not measured.
 *
 *   n elements of a weight */
#include "quantised_formats.h"

#include "config/arch.h"
#include "tape/round.h"

/* ---- blocks ---- */

/* Two elements per byte, a code book, an 8-bit absmax per 64, an fp32 one per 256 of those, their code
 * book and offset (quantize_4bit); without double quantisation an fp32 absmax per 64. */
static size_t four_bit_blocks(const struct oom_packed *w, uint64_t *block)
{
	const uint64_t scales = (w->n + 63) / 64;

	block[0] = (w->n + 1) / 2;
	block[1] = 64;
	block[2] = scales * (w->twice ? 1 : 4);
	if (!w->twice)
		return 3;
	block[3] = (scales + 255) / 256 * 4;
	block[4] = 1024;
	block[5] = 4;
	return 6;
}

/* A byte per element; the scales are a buffer of the layer. */
static size_t int8_blocks(const struct oom_packed *w, uint64_t *block)
{
	block[0] = w->n;
	return 1;
}

/* Eight elements an int32; for every group an fp16 scale and 4 bits of a zero point. */
static size_t nibbles_in_groups(const struct oom_packed *w, uint64_t *block)
{
	block[0] = (w->n + 1) / 2;
	block[1] = w->groups * 2;
	block[2] = (w->groups + 1) / 2;
	return 3;
}

/* Four elements an int32; for every group an fp16 scale and 8 bits of a zero point. */
static size_t bytes_in_groups(const struct oom_packed *w, uint64_t *block)
{
	block[0] = w->n;
	block[1] = w->groups * 2;
	block[2] = w->groups;
	return 3;
}

/* Two elements per byte; for every group a scale and a zero point in 16 bit. */
static size_t halves_in_groups(const struct oom_packed *w, uint64_t *block)
{
	block[0] = (w->n + 1) / 2;
	block[1] = block[2] = w->groups * 2;
	return 3;
}

/* fp32 scales beside the weight, one for every row (Int8Params.SCB); the group of every column. */
static void scale_a_row(struct oom_tape *t, uint64_t out, uint64_t in)
{
	(void)in;
	oom_buffer(t, out, OOM_F32);
}

static void group_a_column(struct oom_tape *t, uint64_t out, uint64_t in)
{
	(void)out;
	oom_buffer(t, in, OOM_I32);
}

/* ---- what the library computes with ---- */

/* To bf16 for one product and again in backward; an absmax that is quantised itself comes first
 * (functional.py, dequantize_4bit). */
static void four_bit_scales(struct oom_tape *t, uint64_t n)
{
	if (t->plan->double_quant)
		oom_scratch(t, "absmax", OOM_MONO_ONE, oom_ceil_div(n, 64), OOM_F32);
}

static struct oom_val result_of(struct oom_tape *t, const char *name, struct oom_val x, uint64_t in,
				struct oom_dim out, enum oom_dtype dt)
{
	return oom_new(t, name, x.mono, (struct oom_dim){out.n * oom_rows_of(t, x.width, in), out.text}, dt);
}

/* The same of the product itself, which selective checkpointing keeps: its mode sees the mm within the library's function. */
static struct oom_val product_of(struct oom_tape *t, const char *name, struct oom_val x, uint64_t in, struct oom_dim out,
				 enum oom_dtype dt)
{
	return oom_new_kept(t, OOM_KEPT_PRODUCT, name, x.mono,
			    (struct oom_dim){out.n * oom_rows_of(t, x.width, in), out.text}, dt);
}

/* MatMul4Bit: ctx.save_for_backward is not used, the packed weight is kept by reference, and before
 * bitsandbytes 0.43.2 the input beside it, which no checkpoint takes away that records a graph in its forward
 * pass (use_reentrant=False).  It computes in bnb_4bit_compute_dtype, which is taken to be the run's own 16-bit
 * type; bf16 in an fp16 run would make fp32 of every sum with what autocast computes. */
static struct oom_val four_bit_product(struct oom_tape *t, const char *name, int32_t node,
				       struct oom_val x, struct oom_val bias, uint64_t in,
				       struct oom_dim out)
{
	struct oom_val y, dq = oom_dequantised(t, in * out.n, (enum oom_dtype)x.dt);

	(void)bias;
	y = product_of(t, name, x, in, out, (enum oom_dtype)x.dt);
	oom_drop(t, dq);
	if (t->plan->keep_base_inputs && oom_wants_grad(t, x))
		oom_node_hold(t, node, x);
	return y;
}

/* MatMul8bitLt: the input in fp16, searched for outliers, quantised by rows; an int32 product made
 * fp16, a bias added to that.  The input is an attribute of the graph's node, which no checkpoint
 * takes away. */
static struct oom_val int8_product(struct oom_tape *t, const char *name, int32_t node,
				   struct oom_val x, struct oom_val bias, uint64_t in,
				   struct oom_dim out)
{
	const uint64_t rows = oom_rows_of(t, x.width, in);
	struct oom_val half = oom_op_cast(t, oom_keep(x), OOM_DT_F16), q, scale, sum, y, z;

	y = oom_scratch_hold(t, "absolute values", x.mono, x.width, OOM_DT_F16);
	z = oom_scratch_hold(t, "outliers", x.mono, x.width, OOM_U8);
	oom_drop(t, y);
	oom_drop(t, z);
	q = oom_scratch_hold(t, "quantised input", x.mono, x.width, OOM_U8);
	scale = oom_scratch_hold(t, "row scales", x.mono, rows, OOM_F32);
	oom_drop(t, half);
	sum = oom_scratch_hold(t, "int32 product", x.mono, out.n * rows, OOM_I32);
	y = result_of(t, name, x, in, out, OOM_DT_F16);
	oom_drop(t, sum);
	oom_drop(t, q);
	oom_drop(t, scale);
	if (!oom_is_none(bias)) {
		z = result_of(t, name, x, in, out, OOM_DT_F16);
		oom_drop(t, y);
		y = z;
	}
	if (x.dt != OOM_DT_F16) {
		z = result_of(t, name, x, in, out, (enum oom_dtype)x.dt);
		oom_drop(t, y);
		y = z;
	}
	if (oom_wants_grad(t, x))
		oom_node_hold(t, node, x);
	return y;
}

/* x times the weight in type dt; under autocast both are cast for it. */
static struct oom_val with_dequantised(struct oom_tape *t, const char *name, struct oom_val x,
				       uint64_t in, struct oom_dim out, enum oom_dtype dt)
{
	const enum oom_dtype half = t->amp ? (enum oom_dtype)t->amp_dt : dt;
	struct oom_val w = oom_dequantised(t, in * out.n, dt), y, cast[2] = {oom_none(), oom_none()};

	if (half != (enum oom_dtype)x.dt)
		cast[0] = oom_scratch_hold(t, "cast input", x.mono, x.width, half);
	if (half != dt)
		cast[1] = oom_scratch_hold(t, "cast weight", OOM_MONO_ONE, in * out.n, half);
	y = product_of(t, name, x, in, out, half);
	oom_drop(t, w);
	oom_drop(t, cast[0]);
	oom_drop(t, cast[1]);
	return y;
}

/* QuantLinearFunction: dequantised to the input's type, forward and backward; nothing of x is kept. */
static struct oom_val gptq_product(struct oom_tape *t, const char *name, int32_t node,
				   struct oom_val x, struct oom_val bias, uint64_t in,
				   struct oom_dim out)
{
	(void)node;
	(void)bias;
	return with_dequantised(t, name, x, in, out, (enum oom_dtype)x.dt);
}

/* WQLinearMMTritonFunction keeps its fp16 input, though no gradient needs it. */
static struct oom_val awq_product(struct oom_tape *t, const char *name, int32_t node,
				  struct oom_val x, struct oom_val bias, uint64_t in,
				  struct oom_dim out)
{
	struct oom_val y, z;

	if (oom_wants_grad(t, x))
		oom_node_save(t, node, x);
	y = with_dequantised(t, name, x, in, out, OOM_DT_F16);
	if (oom_is_none(bias))
		return y;
	z = result_of(t, name, x, in, out, (enum oom_dtype)y.dt);
	oom_drop(t, y);
	return z;
}

/* HQQMatmulNoCacheDeq keeps its input; the weight comes in the model's own type. */
static struct oom_val hqq_product(struct oom_tape *t, const char *name, int32_t node,
				  struct oom_val x, struct oom_val bias, uint64_t in,
				  struct oom_dim out)
{
	static const uint8_t stored[] = {[OOM_BF16] = OOM_DT_BF16, [OOM_FP16] = OOM_DT_F16};
	const enum oom_precision p = oom_plan_stores(t->plan);

	(void)bias;
	if (oom_wants_grad(t, x))
		oom_node_save(t, node, x);
	return with_dequantised(t, name, x, in, out,
				p == OOM_FP32 ? OOM_F32 : (enum oom_dtype)stored[p]);
}

/* ---- the formats ---- */

/* AutoGPTQ's kernels in training: QwenLM's rows of 256, 1,024 and 4,096 tokens, and held on those of 512, 2,048 and
 * 8,192 (data/throughput.csv, qwen-052 to 069); AWQ's as NF4's, HQQ's three passes of PyTorch's own (estimated). */
#define GPTQ_UNPACKS 0.9
#define HQQ_UNPACKS 0.55

/* qweight, qzeros, scales and g_idx are buffers of the module (auto_gptq and gptqmodel nn_modules/qlinear; awq
 * modules/linear/gemm.py WQLinear_GEMM); bitsandbytes' weights and HQQ's W_q are nn.Parameter. */
static const struct oom_quantised_format four_bit = {
	.blocks = four_bit_blocks, .scales = four_bit_scales, .product = four_bit_product,
	.node = "MatMul4Bit", .casts = true, .to_of = oom_four_bit_dtype, .unpacks = 1, .made_on_card = true,
	.over = OOM_LORA_OVER_CLONE};
/* Every nn.Linear is replaced while the model is made; Linear4bit.quantize takes halves, whose type the quantisation remembers.
 * The adapters are not PEFT's (litgpt/lora.py LoRALinear.forward: the sum of both). */
#define OF_LIGHTNING \
	.blocks = four_bit_blocks, .scales = four_bit_scales, .product = four_bit_product, .node = "MatMul4Bit", \
	.casts = true, .to_of = oom_four_bit_dtype, .unpacks = 1, .head = true, .through_fp16 = true, .over = OOM_LORA_OVER_ANY
static const struct oom_quantised_format lightning = {OF_LIGHTNING};
/* bitsandbytes' StableEmbedding takes the table's place when the optimizer has been made.  main() still names the old one; the
 * new one has a gradient, which nothing steps or empties.  The norm behind it is left out. */
static const struct oom_quantised_format litgpt = {OF_LIGHTNING, .tables = 2};
static const struct oom_quantised_format int8 = {
	.blocks = int8_blocks, .beside = scale_a_row, .product = int8_product, .node = "MatMul8bitLt", .made_on_card = true,
	.over = OOM_LORA_OVER_RESULT};
static const struct oom_quantised_format gptq = {
	.blocks = nibbles_in_groups, .group = 128, .beside = group_a_column, .product = gptq_product,
	.node = "QuantLinearFunction", .unpacks = GPTQ_UNPACKS, .buffers = true, .over = OOM_LORA_OVER_ANY};
static const struct oom_quantised_format gptq8 = {
	.blocks = bytes_in_groups, .group = 128, .beside = group_a_column, .product = gptq_product,
	.node = "QuantLinearFunction", .unpacks = GPTQ_UNPACKS, .buffers = true, .over = OOM_LORA_OVER_ANY};
static const struct oom_quantised_format awq = {
	.blocks = nibbles_in_groups, .group = 128, .product = awq_product, .node = "WQLinearMMTritonFunction",
	.casts = true, .to = OOM_DT_F16, .repeats = true, .unpacks = 1, .buffers = true,
	.over = OOM_LORA_OVER_RESULT};
/* Quantizer.dequantize: the codes unpacked, less the zero point, times the scale */
static const struct oom_quantised_format hqq = {
	.blocks = halves_in_groups, .group = 64, .product = hqq_product, .node = "HQQMatmulNoCacheDeq", .temps = 2,
	.unpacks = HQQ_UNPACKS, .over = OOM_LORA_OVER_SUM};
static const struct oom_quantised_format *const formats[] = {
	[OOM_BASE_PLAIN] = NULL,
	[OOM_BASE_NF4] = &four_bit,
	[OOM_BASE_FP4] = &four_bit,
	[OOM_BASE_INT8] = &int8,
	[OOM_BASE_GPTQ] = &gptq,
	[OOM_BASE_AWQ] = &awq,
	[OOM_BASE_HQQ] = &hqq,
	[OOM_BASE_GPTQ8] = &gptq8,
	[OOM_BASE_LIGHTNING] = &lightning,
	[OOM_BASE_LITGPT] = &litgpt,
};

const struct oom_quantised_format *oom_quantised_format(enum oom_base base)
{
	return formats[base];
}

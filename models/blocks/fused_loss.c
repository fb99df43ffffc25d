/* Losses that take the head in: from the last hidden states to the loss without whole logits.  Each is
 * one row of the table below; families come to them by oom_fused_head alone. */
#include <math.h>
#include <string.h>

#include "blocks.h"
#include "fused_loss.h"
#include "plan/pattern.h"
#include "tape/round.h"

/* ---- Liger: gradients made in the forward ---- */

/* One chunk: logits, their gradient in place, the input's gradient, the head's. */
static void fused_chunk(struct oom_tape *t, struct oom_val x, struct oom_val w, enum oom_dtype dt,
			uint16_t chunk, uint64_t n, uint64_t v, uint64_t d)
{
	const bool grad = t->grad;
	const struct oom_dim weight = {v * d, "vocab_size * d_model"}, rows = {n * d, NULL};
	struct oom_val cast = oom_none(), rows16 = oom_none(), lc;

	/* logits = x @ w.t(): a transposed weight is no leaf, autocast casts it anew */
	if (t->amp && x.dt != dt)
		rows16 = oom_new(t, "input chunk", chunk, rows, dt);
	if (t->amp && w.dt != dt)
		cast = oom_new(t, "weight copy", OOM_MONO_ONE, weight, dt);
	lc = oom_new(t, "logits chunk", chunk, (struct oom_dim){n * v, NULL}, dt);
	oom_drop(t, cast);
	oom_drop(t, rows16);
	/* grad x = logits @ w: the leaf's copy goes through the cache */
	t->grad = false;
	cast = t->amp ? oom_amp_cast(t, w) : oom_none();
	t->grad = grad;
	oom_drop(t, oom_new(t, "input gradient chunk", chunk, rows, dt));
	if (cast.sto >= 0)
		oom_drop(t, cast);
	if (w.rg && w.dt == OOM_F32 && dt != OOM_F32) {         /* addmm into the fp32 gradient */
		oom_drop(t, oom_new(t, "input chunk", chunk, rows, dt));
	} else if (w.rg) {                                      /* gw += mm(...).float() */
		struct oom_val m = oom_new(t, "head gradient chunk", OOM_MONO_ONE, weight, dt);

		if (dt != OOM_F32)
			oom_drop(t,
				 oom_new(t, "head gradient chunk", OOM_MONO_ONE, weight, OOM_F32));
		oom_drop(t, m);
	}
	oom_drop(t, lc);
}

/* The head's gradient is added to chunk by chunk: gw += mm(...).float() reads and writes it, writes and reads the product and its fp32
 * form, of which two chunks are in the rows; addmm reads and writes it.  Chunks are as many as the power of two below V / h where tokens
 * are a power of two: 32 of a Llama 1B move 134 GB of 8,192 tokens, most of 80 ms on an H100 (data/h100_steps.csv, 1b-liger). */
static void count_sums(struct oom_tape *t, struct oom_val w, uint64_t inc, enum oom_dtype dt, struct oom_head_part part)
{
	const bool adds = w.dt == OOM_F32 && dt != OOM_F32;
	const double parts = part.many ? exp2(floor(log2((double)inc))) : 1, made = 2 * oom_dtype_bytes(dt) + (dt != OOM_F32 ? 8 : 0),
		     more = !adds && parts > 2 ? (parts - 2) * made : 0;

	if (w.rg)
		oom_tape_moves(t, (parts * 2 * oom_dtype_bytes((enum oom_dtype)w.dt) + more) * (double)w.width);
}

typedef void chunk_fn(struct oom_tape *t, struct oom_val x, struct oom_val w, enum oom_dtype dt,
		      uint16_t chunk, uint64_t n, uint64_t v, uint64_t d);

struct oom_head_part oom_part_of_tokens(struct oom_tape *t, uint16_t tokens, uint64_t chunk)
{
	const bool many = oom_cond_above(t, tokens, chunk);

	return (struct oom_head_part){many ? OOM_MONO_ONE : tokens, many ? chunk : 1, many};
}

/* The head's weight as a kernel is handed it: get_output_embeddings().weight, which is the copy where
 * PEFT trains one (peft/utils/other.py ModulesToSaveWrapper.__getattr__). */
struct oom_val oom_head_weight(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
				  struct oom_val embed, const char *name)
{
	struct oom_val w = a->tie ? embed :
				    oom_param(t, "weight", a->vocab, h.width, OOM_P_HEAD | OOM_P_LINEAR);

	return oom_token_rows(t, oom_saved_copy(t, name, w));
}

/* Head, loss and their gradients part by part, all in the forward; the input's are summed in `sum`. */
static struct oom_val made_in_forward(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
				      struct oom_val embed, const char *name, struct oom_head_part part,
				      chunk_fn *run, enum oom_dtype sum)
{
	const uint64_t v = a->vocab, d = h.width;
	struct oom_val w, gx, gw = oom_none(), loss, total, labels;
	struct oom_val as = h;
	enum oom_dtype dt;
	int32_t n = -1;
	bool rg;

	t->vocab = v;
	t->fused = true;
	t->scope = name;
	w = oom_head_weight(t, a, h, embed, name);
	rg = t->grad && (h.rg || w.rg);
	if (rg) {
		n = oom_node(t, OOM_NODE_GIVEN, "FusedLinearCE");
		oom_node_edge(t, n, h);
		oom_node_edge(t, n, w);
	}
	labels = oom_new(t, "shifted labels", oom_len_plus_in_one(t, t->m_b, 1), D(1),
			 OOM_I64);
	gx = oom_new(t, "grad of input", h.mono, (struct oom_dim){d, NULL}, sum);
	if (w.rg)
		gw = oom_new(t, "grad of head", OOM_MONO_ONE,
			     (struct oom_dim){v * d, "vocab_size * d_model"}, (enum oom_dtype)w.dt);
	loss = oom_new(t, "loss per token", h.mono, D(1), OOM_F32);
	dt = t->amp ? (enum oom_dtype)t->amp_dt : (enum oom_dtype)h.dt;
	as.dt = (uint8_t)dt;
	oom_tape_product(t, as, d, v, oom_trains(t, w));
	if (run == fused_chunk)
		count_sums(t, w, oom_ceil_div(v, d), dt, part);
	/* from the second chunk on the cast weight is cached */
	for (int i = 0; i < (part.many ? 2 : 1); i++)
		run(t, h, w, dt, part.mono, part.rows, v, d);
	total = oom_new(t, "loss", OOM_MONO_ONE, D(1), OOM_F32);
	oom_drop(t, loss);
	if (gx.dt != h.dt) {
		as = oom_new(t, "grad of input", h.mono, (struct oom_dim){d, NULL}, (enum oom_dtype)h.dt);
		oom_drop(t, gx);
		gx = as;
	}
	if (rg) {
		total = oom_node_out(t, n, 0, total);
		oom_node_save(t, n, gx);
		oom_node_save(t, n, gw);
	}
	oom_drop(t, gx);
	oom_drop(t, gw);
	oom_drop(t, labels);
	oom_done(t, h);
	return total;
}

/* Liger's fused linear cross-entropy: chunk = next power of two of tokens / ceil(V / h); the chunk
 * of logits is overwritten by its gradient; gradients of input and head exist from the forward on
 * (linkedin/Liger-Kernel, ops/fused_linear_cross_entropy.py). */
static struct oom_val liger(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			    struct oom_val embed, const char *name)
{
	const uint64_t inc = oom_ceil_div(a->vocab, h.width);
	const uint64_t tokens = oom_mono_now(t, h.mono);
	uint64_t chunk = 1, piece = oom_ceil_div(tokens, inc);
	uint16_t mono = OOM_MONO_ONE;

	while (chunk < piece)
		chunk *= 2;
	if (h.mono == t->m_bs && inc <= UINT32_MAX) {   /* the chunk steps with the tokens */
		mono = oom_len_pow2_part(t, OOM_MONO_ONE, inc);
		oom_cond_more(t, h.mono, 1, mono, 1);
	} else { /* tokens of another kind: record anew beyond the step */
		oom_cond_above(t, h.mono, chunk * inc);
		oom_cond_above(t, h.mono, chunk / 2 * inc);
	}
	chunk = chunk < tokens ? chunk : tokens;
	return made_in_forward(t, a, h, embed, name,
			       (struct oom_head_part){mono, mono == OOM_MONO_ONE ? chunk : 1, chunk < tokens},
			       fused_chunk, (enum oom_dtype)h.dt);
}

/* ---- torchtitan, DeepSpeed ALST: a plain head and loss, part by part ---- */

enum { PARTS = 8 };

/* Logits, their fp32 copy, log-probabilities; the backward at once: the zeros nll_loss fills, the logits'
 * gradient, that of the input and of the head.  `logits` is a local of the turn. */
static void plain_chunk(struct oom_tape *t, struct oom_val x, struct oom_val w, enum oom_dtype dt,
			uint16_t chunk, uint64_t n, uint64_t v, uint64_t d)
{
	const struct oom_dim logits = {n * v, NULL}, weight = {v * d, "vocab_size * d_model"};
	struct oom_val rows16 = oom_none(), cast = oom_none(), lc, f = oom_none(), lp, zeros, g, gw;

	if (t->amp && x.dt != dt)
		rows16 = oom_new(t, "input chunk", chunk, (struct oom_dim){n * d, NULL}, dt);
	if (t->amp)
		cast = oom_amp_cast(t, w);
	lc = oom_new(t, "logits chunk", chunk, logits, dt);
	if (dt != OOM_F32)
		f = oom_new(t, "logits chunk in fp32", chunk, logits, OOM_F32);
	lp = oom_new(t, "log_softmax", chunk, logits, OOM_F32);
	oom_drop(t, f);
	zeros = oom_new(t, "nll_loss_backward", chunk, logits, OOM_F32);
	g = oom_new(t, "_log_softmax_backward_data", chunk, logits, OOM_F32);
	oom_drop(t, zeros);
	oom_drop(t, lp);
	if (dt != OOM_F32) {
		f = oom_new(t, "logits gradient", chunk, logits, dt);
		oom_drop(t, g);
		g = f;
	}
	oom_drop(t, oom_new(t, "input gradient chunk", chunk, (struct oom_dim){n * d, NULL}, dt));
	if (w.rg) {
		gw = oom_new(t, "head gradient chunk", OOM_MONO_ONE, weight, dt);
		if (w.dt != dt)
			oom_drop(t, oom_new(t, "head gradient chunk", OOM_MONO_ONE, weight,
					    (enum oom_dtype)w.dt));
		oom_drop(t, gw);
	}
	oom_drop(t, g);
	oom_drop(t, lc);
	if (cast.sto >= 0)
		oom_drop(t, cast);
	oom_drop(t, rows16);
}

/* Eight parts, each with its own backward, whose gradients go into one fp32 buffer and into the head's
 * (torchtitan components/loss.py ChunkedLossWrapper, GradAccumulator); of DeepSpeed's TiledFusedLogitsLoss with
 * --loss-chunk tokens. */
static struct oom_val tiled(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			    struct oom_val embed, const char *name)
{
	const uint64_t chunk = (uint64_t)t->plan->loss_chunk;
	const struct oom_head_part eighth = {oom_len_ceil(t, t->m_b, PARTS), 1, true};

	return made_in_forward(t, a, h, embed, name, chunk ? oom_part_of_tokens(t, h.mono, chunk) : eighth,
			       plain_chunk, OOM_F32);
}

/* ---- torchtune: the same parts, whose log-probabilities wait for one backward ---- */

/* Every part is picked by its mask (a copy), run through the head, upcast and handed to cross_entropy
 * (torchtune modules/loss/cross_entropy_loss.py LinearCrossEntropyLoss).  Compiled, a part's loss reads its 16-bit
 * logits (training/_compile.py compile_loss). */
static struct oom_val torchtune(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
				struct oom_val embed, const char *name)
{
	const uint16_t rows = oom_len_ceil(t, t->m_b, PARTS);
	const struct oom_dim d = {h.width, h.text}, v = {a->vocab, "vocab_size"};
	struct oom_val w, loss = oom_none();

	t->vocab = a->vocab;
	t->fused = true;
	t->scope = name;
	w = oom_head_weight(t, a, h, embed, name);
	for (int i = 0; i < PARTS; i++) {
		struct oom_val x = oom_op_slice(t, oom_keep(h), rows, d), logits, one;

		x = oom_op_gather(t, "tokens with labels", x, oom_new(t, "places", rows, D(1), OOM_I64),
				  rows, d);
		logits = oom_op_matmul_param(t, name, x, oom_share(t, w), oom_none(), v);
		one = oom_share(t, logits);
		logits = oom_cross_entropy(t, oom_upcast_logits(t, logits),
					   oom_new(t, "labels", rows, D(1), OOM_I64));
		oom_drop(t, one);
		loss = i ? oom_op_add(t, loss, logits) : logits;
		t->scope = name;
	}
	oom_done(t, h);
	return loss;
}

/* ---- litgpt: the head in parts, the loss of all when they are there ---- */

/* The model returns a list of logits, which Fabric makes fp32 together and the loop's name holds until the backward is over
 * (litgpt/finetune/lora.py fit(); lightning/fabric/plugins/precision: convert_output).  A part is 128 tokens of every
 * sequence; here it is a quarter, which are 128 of 512, to which litgpt's own files cut, and more than 128 of a longer one. */
static struct oom_val in_parts(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			       struct oom_val embed, const char *name)
{
	enum { QUARTERS = 4 };
	const uint16_t rows = oom_len_ceil(t, t->m_b, QUARTERS);
	const struct oom_dim d = {h.width, h.text}, v = {a->vocab, "vocab_size"};
	struct oom_val w = oom_none(), own[QUARTERS], full, loss = oom_none();
	struct oom_linear l;

	t->vocab = a->vocab;
	t->fused = true;
	t->scope = name;
	if (a->tie)
		w = oom_head_weight(t, a, h, embed, name);
	else if (!oom_linear_open(t, &l, name, h.width, v, OOM_IS_HEAD))
		return h;
	for (int i = 0; i < QUARTERS; i++) {
		full = oom_op_slice(t, oom_keep(h), rows, d);
		own[i] = a->tie ? oom_op_matmul_param(t, name, full, oom_share(t, w), oom_none(), v) :
				  oom_linear_run(t, &l, full);
	}
	for (int i = 0; i < QUARTERS; i++) {
		full = oom_op_cast(t, oom_share(t, own[i]), OOM_F32);
		if (full.node >= 0 && full.sto != own[i].sto)
			oom_node_save(t, full.node, full);
		oom_drop(t, own[i]);
		own[i] = full;
	}
	for (int i = 0; i < QUARTERS; i++) {
		full = oom_cross_entropy(t, own[i], oom_new(t, "labels", rows, D(1), OOM_I64));
		loss = i ? oom_op_add(t, loss, full) : full;
		t->scope = name;
	}
	oom_done(t, h);
	return loss;
}

/* ---- cut cross-entropy: logits in registers alone ---- */

/* Kept: hidden states and weight in the type of the product, one logsumexp and one place per token, the
 * mean of every word's logits, by which the backward sorts them (apple/ml-cross-entropy,
 * cut_cross_entropy/cce.py LinearCrossEntropyFunction; the copies that autocast has it make are no
 * leaves' and are not cached). */
static struct oom_val cut(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			  struct oom_val embed, const char *name)
{
	const uint16_t tokens = oom_len_minus(t, t->m_b, 1);
	const enum oom_dtype dt = t->amp ? (enum oom_dtype)t->amp_dt : (enum oom_dtype)h.dt;
	const struct oom_dim d = {h.width, h.text},
			     weight = {a->vocab * h.width, "vocab_size * d_model"};
	struct oom_val w, e, c, valids, lse, mean, loss;
	int32_t n = -1;

	t->vocab = a->vocab;
	t->fused = true;
	t->scope = name;
	w = oom_head_weight(t, a, h, embed, name);
	if (t->grad && (h.rg || w.rg)) {
		n = oom_node(t, OOM_NODE_CUT, "LinearCrossEntropyFunction");
		oom_node_edge(t, n, h);
		oom_node_edge(t, n, w);
		if (n >= 0)
			t->nodes[n].aux_width = a->vocab;
	}
	valids = oom_new(t, "places of labels", tokens, D(1), OOM_I64);
	e = h.dt == dt ? oom_share(t, h) : oom_new(t, "hidden states", h.mono, d, dt);
	c = w.dt == dt ? oom_share(t, w) : oom_new(t, "weight copy", OOM_MONO_ONE, weight, dt);
	e.dt = (uint8_t)dt;
	oom_tape_product(t, e, h.width, a->vocab, oom_trains(t, w));
	lse = oom_new(t, "logsumexp", tokens, D(1), OOM_F32);
	mean = n < 0 ? oom_none() :
		       oom_new(t, "mean logits", OOM_MONO_ONE, (struct oom_dim){a->vocab, "vocab_size"},
			       OOM_F32);
	oom_scratch(t, "negative dot product", tokens, 1, OOM_F32);
	loss = oom_new(t, "loss", OOM_MONO_ONE, D(1), OOM_F32);
	if (n >= 0) {
		oom_node_save(t, n, e);
		oom_node_save(t, n, c);
		oom_node_save(t, n, lse);
		oom_node_save(t, n, valids);
		oom_node_save(t, n, mean);
		loss = oom_node_out(t, n, 0, loss);
		t->nodes[n].dt = (uint8_t)dt;   /* of the products */
	}
	oom_drop(t, mean);
	oom_drop(t, lse);
	oom_drop(t, c);
	oom_drop(t, e);
	oom_drop(t, valids);
	oom_done(t, h);
	return loss;
}

/* ---- the table ---- */

/* Behind each word of --loss that takes the head in; the others work on logits. */
static const struct {
	struct oom_val (*head)(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			       struct oom_val embed, const char *name);
	bool evaluates;         /* evaluations take it too */
} taking_in[] = {
	[OOM_LOSS_FUSED] = {liger, false},
	[OOM_LOSS_CHUNKED_NLL] = {oom_chunked_nll, true},
	[OOM_LOSS_CUT] = {cut, true},
	[OOM_LOSS_CHUNKED] = {torchtune, true},
	[OOM_LOSS_TILED] = {tiled, false},
	[OOM_LOSS_PARTS] = {in_parts, false},
};
enum { TAKING_IN = sizeof(taking_in) / sizeof(taking_in[0]) };

bool oom_loss_takes_head(int64_t loss)
{
	return loss >= 0 && loss < TAKING_IN && taking_in[loss].head;
}

bool oom_fuses_head(const struct oom_tape *t)
{
	const int64_t loss = t->plan->fused_ce;

	return oom_loss_takes_head(loss) && !t->no_labels &&
	       (t->train || taking_in[loss].evaluates);
}

struct oom_val oom_fused_ce(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			    struct oom_val embed, const char *name)
{
	return taking_in[t->plan->fused_ce].head(t, a, h, embed, name);
}

struct oom_val oom_fused_head(struct oom_tape *t, const struct oom_arch *a, struct oom_val h,
			      struct oom_val embed, const char *name, bool bias)
{
	struct oom_val loss = oom_fused_ce(t, a, h, embed, name);

	if (bias && strcmp(name, "decoder") != 0)
		t->scope = name;
	if (bias)
		oom_drop(t, oom_param(t, "bias", 0, a->vocab, OOM_P_UNUSED));
	return loss;
}

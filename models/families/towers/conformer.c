/* Granite Speech: a conformer over pairs of frames, and a Q-Former that makes a few features of every window.  Attention is
 * in blocks of context_size, by PyTorch's own products whatever the plan asks for, with biases that are products of the
 * queries and embedded distances; no layer is checkpointed.
 * Reference: transformers 5.12, models/granite_speech/modeling_granite_speech.py. */
#include "ops/conv.h"
#include "ops/scan.h"
#include "projector.h"
#include "resamplers.h"

struct conformer {
	uint64_t d, ff, heads, head, context, wide, kernel, places, layers, rows, padded, out;
	double dropout;
	uint16_t m_rows, m_padded;
};

static bool conformer_read(struct conformer *c, struct oom_emit *e)
{
	struct oom_reader *r = &e->part[1];
	const uint64_t seconds = e->t->plan->audio_seconds > 0 ? (uint64_t)e->t->plan->audio_seconds : 1;

	*c = (struct conformer){.d = oom_read_count(r, "hidden_dim", 1), .heads = oom_read_count(r, "num_heads", 1),
				.context = oom_read_count_or(r, "context_size", 200), .kernel = oom_read_count(r, "conv_kernel_size", 1),
				.places = 2 * oom_read_count(r, "max_pos_emb", 1) + 1, .layers = oom_read_count(r, "num_layers", 0),
				.out = oom_read_count_or(r, "output_dim", 42), .dropout = oom_read_real(r, "dropout", 0.1),
				.rows = 50 * seconds};
	if (!r->status && (!c->context || c->context > 1 << 16 || c->heads > c->d || c->d > 1 << 20 || c->layers > OOM_MAX_LAYERS ||
			   c->kernel > 1 << 16))
		oom_read_fail(r, "the audio tower's sizes (%s) make no model", r->prefix);
	if (r->status)
		return false;
	c->head = oom_read_count_or(r, "dim_head", c->d / c->heads);
	c->ff = c->d * oom_read_count_or(r, "feedforward_mult", 4);
	c->wide = c->d * oom_read_count_or(r, "conv_expansion_factor", 2);
	c->padded = (c->rows + c->context - 1) / c->context * c->context;
	c->m_rows = oom_len_const(e->t, e->t->m_b, c->rows);
	c->m_padded = oom_len_const(e->t, e->t->m_b, c->padded);
	return true;
}

static struct oom_val feed_forward(struct oom_tape *t, const struct conformer *c, struct oom_val x)
{
	struct oom_frame f = {.t = t};

	x = oom_name(&f, oom_op_layer_norm(t, "pre_norm", x, 0, true, true));
	x = oom_rename(&f, x, oom_op_linear(t, "up_proj", x, (struct oom_dim){c->ff, "feedforward_mult * hidden_dim"}, OOM_BIAS));
	x = oom_rename(&f, x, oom_op_dropout(t, oom_op_unary(t, OOM_SILU, x), c->dropout));
	x = oom_rename(&f, x, oom_op_linear(t, "down_proj", x, (struct oom_dim){c->d, "hidden_dim"}, OOM_BIAS));
	return oom_leave(&f, oom_op_dropout(t, x, c->dropout));
}

/* einsum("bmhcd,crd->bmhcr") * scale: a copy of the queries, by their places in the block. */
static struct oom_val distances(struct oom_frame *f, const struct conformer *c, struct oom_val q, uint16_t scores)
{
	const struct oom_dim head = {c->head, "dim_head"}, heads = {c->heads, "num_heads"};
	const uint16_t pairs = oom_len_const(f->t, oom_len_const(f->t, OOM_MONO_ONE, c->context), c->context);
	struct oom_tape *t = f->t;
	struct oom_val p = oom_input(t, "attention_dists", pairs, 1, OOM_I64);

	p = oom_name(f, oom_op_embedding(t, "rel_pos_emb", p, c->places, head, 0));
	p = oom_op_bmm(t, "pos_attn", oom_op_copy(t, "einsum", q), p, scores, heads, c->head);
	return oom_name(f, oom_op_unary(t, OOM_SCALE, p));
}

static struct oom_val attention(struct oom_tape *t, const struct conformer *c, struct oom_val x)
{
	const struct oom_dim d = {c->d, "hidden_dim"}, inner = {c->heads * c->head, "num_heads * dim_head"}, parts[2] = {inner, inner};
	const uint16_t len = oom_len_const(t, OOM_MONO_ONE, c->context), scores = oom_len_const(t, c->m_padded, c->context);
	const struct oom_sdpa a = {.heads = c->heads, .kv_heads = c->heads, .d = c->head, .dv = c->head, .mq = c->m_padded,
				   .mk = c->m_padded, .sk = len, .sq = len, .gqa = true, .across = true};
	struct oom_frame f = {.t = t};
	struct oom_val q, kv[2], bias;

	x = oom_name(&f, oom_op_layer_norm(t, "pre_norm", x, 0, true, true));
	if (c->padded > c->rows)
		x = oom_rename(&f, x, oom_op_pad(t, x, c->m_padded, d));
	q = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "to_q", x, inner, 0)));
	oom_op_split(t, oom_op_linear(t, "to_kv", x, (struct oom_dim){2 * inner.n, "2 * num_heads * dim_head"}, 0), 2, parts, kv);
	for (int i = 0; i < 2; i++)
		kv[i] = oom_name(&f, oom_op_heads(t, kv[i]));
	bias = distances(&f, c, q, scores);
	x = oom_rename(&f, x, oom_op_merge_heads(t, oom_op_sdpa(t, q, kv[0], kv[1], bias, &a)));
	if (c->padded > c->rows) {
		x = oom_op_slice(t, x, c->m_rows, inner);
		x.perm = oom_cond_above(t, t->m_b, 1);
	}
	return oom_leave(&f, oom_op_dropout(t, oom_op_linear(t, "to_out", x, d, OOM_BIAS), c->dropout));
}

/* GraniteSpeechConformerConvModule */
static struct oom_val convolved(struct oom_tape *t, const struct conformer *c, struct oom_val x)
{
	const struct oom_conv1d up = {.in = c->d, .out = 2 * c->wide, .kernel = 1, .bias = true},
				down = {.in = c->wide, .out = c->d, .kernel = 1, .bias = true};
	const struct oom_dim wide = {c->wide, "conv_expansion_factor * hidden_dim"};
	struct oom_frame f = {.t = t};
	struct oom_map m = {.c = c->wide, .h = c->rows, .w = 1};

	x = oom_name(&f, oom_op_layer_norm(t, "norm", x, 0, true, true));
	x = oom_rename(&f, x, oom_op_conv1d(t, "up_conv", x, &up, c->m_rows));
	x = oom_rename(&f, x, oom_op_gather(t, "glu", x, x, c->m_rows, wide));  /* keeps what it halves */
	x = oom_op_pad(t, x, oom_len_const(t, t->m_b, c->rows + c->kernel - 1), wide);
	x = oom_rename(&f, x, oom_op_conv_depthwise(t, "depth_conv", x, c->kernel, false, c->m_rows, wide));
	m.x = oom_op_view(t, x, t->m_b, (struct oom_dim){c->wide * c->rows, "channels * rows"});
	m = oom_batch_norm(t, "batch_norm", m);
	x = oom_rename(&f, x, oom_op_unary(t, OOM_SILU, oom_op_view(t, m.x, c->m_rows, wide)));
	x = oom_rename(&f, x, oom_op_conv1d(t, "down_conv", x, &down, c->m_rows));
	return oom_leave(&f, oom_op_dropout(t, x, c->dropout));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct conformer *c = ctx;
	struct oom_frame f = {.t = t};

	(void)i;
	x = oom_name(&f, oom_op_add(t, oom_op_unary(t, OOM_SCALE, feed_forward(t, c, x)), x));
	x = oom_rename(&f, x, oom_op_add(t, attention(t, c, x), x));
	x = oom_rename(&f, x, oom_op_add(t, convolved(t, c, x), x));
	x = oom_rename(&f, x, oom_op_add(t, oom_op_unary(t, OOM_SCALE, feed_forward(t, c, x)), x));
	return oom_leave(&f, oom_op_layer_norm(t, "post_norm", x, 0, true, true));
}

/* GraniteSpeechCTCEncoder: what its middle layer would spell is added to its states. */
static struct oom_val encoded(struct oom_emit *e, const struct conformer *c)
{
	const struct oom_dim d = {c->d, "hidden_dim"}, out = {c->out, "output_dim"};
	const uint64_t in = oom_read_count(&e->part[1], "input_dim", 1), first = c->layers / 2;
	struct oom_tape *t = e->t;
	struct oom_frame f = {.t = t};
	struct oom_val x = oom_input(t, "input_features", c->m_rows, in, oom_loaded_dtype(t->plan)), y;

	if (e->merged)
		t->pixels += in * c->rows;
	oom_buffer(t, c->context * c->context, OOM_I64);        /* attention_dists */
	x = oom_op_linear_in(t, "input_linear", x, in, d, OOM_BIAS);
	x = oom_name(&f, oom_plain_layers(t, first, NULL, block, c, sizeof(*c), x));
	t->scope = "encoder";
	y = oom_op_linear(t, "out", oom_op_copy(t, "clone", x), out, OOM_BIAS);
	y = oom_op_linear(t, "out_mid", oom_op_softmax(t, y, false), d, OOM_BIAS);
	x = oom_op_add_inplace(t, oom_take(&f, x), y);
	return oom_plain_layers(t, c->layers - first, NULL, block, c, sizeof(*c), x);
}

struct oom_val oom_emit_granite_speech(struct oom_emit *e)
{
	const uint64_t window = oom_read_count_or(&e->outer, "window_size", 15), rate = oom_read_count_or(&e->outer, "downsample_rate", 5),
		       queries = rate && window >= rate ? window / rate : 1;
	struct oom_tape *t = e->t;
	struct conformer c;
	uint64_t windows;
	struct oom_val x;

	if (!conformer_read(&c, e) || !window)
		return oom_none();
	x = encoded(e, &c);
	windows = (c.rows + window - 1) / window;
	x = oom_op_pad(t, x, oom_len_const(t, t->m_b, windows * window), (struct oom_dim){c.d, "hidden_dim"});
	e->m_images = oom_len_const(t, t->m_b, windows);
	oom_tower_tokens(e, window);
	/* as wide as the Q-Former is told, which is the encoder's width in a config that makes a model */
	x = oom_op_view(t, x, e->m_tokens, (struct oom_dim){oom_read_count(&e->part[2], "encoder_hidden_size", 1), NULL});
	x = oom_qformer_of(e, &e->part[2], "query", queries, x);
	x = oom_project(e, "linear", x, e->a->d_model, true);
	if (e->merged)
		t->pixel_mask += 1;
	return x;
}

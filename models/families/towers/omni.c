/* The audio encoders of Qwen's Omni thinkers, beside the vision towers of mergers.c.  Recordings are joined, cut into chunks
 * of 2 x n_window frames of a hundredth of a second and padded to the longest; two convolutions in one dimension make one
 * state of two frames, three in two dimensions one of eight.  States of all chunks are one sequence, attended to chunk by
 * chunk (2.5) or window by window (3).
 * Reference: transformers 5.12, models/{qwen2_5_omni,qwen3_omni_moe}/modeling_*.py, the AudioEncoder classes. */
#include "ops/conv.h"
#include "blocks/image.h"
#include "projector.h"
#include "weights.h"

struct ears {
	uint64_t d, ff, layers, heads, mels, chunk, out, channels, window, positions;
	double attn_dropout;
	enum oom_act act;
	bool planes;                    /* convolutions in two dimensions; keys with a bias, two layers behind (3) */
};
struct layer {
	struct ears h;
	uint16_t m_tokens, m_len;
};

/* Every chunk by itself, the results joined. */
static struct oom_val attention(struct oom_tape *t, const struct layer *l, struct oom_val x)
{
	const uint64_t head = l->h.d / l->h.heads;
	const struct oom_dim d = {l->h.d, "d_model"};
	struct oom_attn at = {.heads = l->h.heads, .kv_heads = l->h.heads, .d = head, .dv = head, .scale_after = true,
			      .mq = l->m_tokens, .mk = l->m_tokens, .sk = l->m_len, .mask = oom_none(),
			      .kv_from = oom_none(), .dropout = l->h.attn_dropout};
	static const char *const names[3] = {"q_proj", "k_proj", "v_proj"};
	struct oom_frame f = {.t = t};
	struct oom_val p[3];

	x = oom_arg(&f, x);
	for (int i = 0; i < 3; i++) {
		p[i] = oom_op_linear(t, names[i], x, d, i != 1 || l->h.planes ? OOM_BIAS : 0);
		p[i] = oom_name(&f, oom_op_heads(t, p[i]));
		if (t->plan->attn == OOM_ATTN_EAGER)    /* of one alone the heads are a batch, however they lie */
			p[i].perm = false;
	}
	x = oom_attention_core(t, &at, p[0], p[1], p[2]);
	if (t->plan->attn != OOM_ATTN_FLASH)
		x = oom_op_copy(t, "cat", x);
	return oom_leave(&f, oom_op_linear(t, "out_proj", x, d, OOM_BIAS));
}

static struct oom_val block(struct oom_tape *t, const void *ctx, uint32_t i, struct oom_val x)
{
	const struct layer *l = ctx;
	const struct oom_dim d = {l->h.d, "d_model"}, ff = {l->h.ff, "encoder_ffn_dim"};
	struct oom_frame f = {.t = t};
	struct oom_val h;

	(void)i;
	h = oom_name(&f, oom_op_layer_norm(t, "self_attn_layer_norm", x, 0, true, true));
	h = oom_rename(&f, h, attention(t, l, h));
	x = oom_rename(&f, h, oom_op_add(t, x, h));
	h = oom_name(&f, oom_op_layer_norm(t, "final_layer_norm", x, 0, true, true));
	h = oom_rename(&f, h, oom_op_linear(t, "fc1", h, ff, OOM_BIAS));
	h = oom_rename(&f, h, oom_activation(t, l->h.act, h));
	h = oom_rename(&f, h, oom_op_linear(t, "fc2", h, d, OOM_BIAS));
	x = oom_rename(&f, h, oom_op_add(t, x, h));
	if (x.dt == OOM_DT_F16)                 /* clamped to the type's largest numbers */
		x = oom_rename(&f, x, oom_op_unary(t, OOM_CLAMP, x));
	return oom_leave(&f, x);
}

static bool read_ears(struct ears *h, struct oom_reader *r, bool planes)
{
	*h = (struct ears){.d = oom_read_count(r, "d_model", 1), .ff = oom_read_count(r, "encoder_ffn_dim", 1),
			   .layers = oom_read_count(r, "encoder_layers", 0), .heads = oom_read_count(r, "encoder_attention_heads", 1),
			   .mels = oom_read_count_or(r, "num_mel_bins", 128),
			   .chunk = 2 * oom_read_count_or(r, "n_window", planes ? 50 : 100),
			   .out = oom_read_count(r, "output_dim", 1), .channels = oom_read_count_or(r, "downsample_hidden_size", 480),
			   .window = oom_read_count_or(r, "n_window_infer", 400),
			   .positions = oom_read_count_or(r, "max_source_positions", 1500),
			   .attn_dropout = oom_read_real(r, "attention_dropout", 0),
			   .act = oom_read_act(r, "activation_function", "gelu"), .planes = planes};
	if (!r->status && (h->heads > h->d || h->layers > OOM_MAX_LAYERS || !h->chunk || h->chunk > 1 << 20 || h->mels > 1 << 16 ||
			   h->channels > 1 << 16 || h->d > 1 << 20))
		oom_read_fail(r, "the audio tower's sizes (%s) make no model", r->prefix);
	return !r->status;
}

static uint64_t half(uint64_t n)
{
	return (n + 1) / 2;
}

/* States of so many frames: of each chunk, when the kind has planes. */
static uint64_t states(const struct ears *h, uint64_t frames)
{
	if (!h->planes)
		return half(frames);
	return frames / h->chunk * half(half(half(h->chunk))) + half(half(half(frames % h->chunk)));
}

/* gelu(conv1), of which padding is taken out, and gelu(conv2). */
static struct oom_val in_lines(struct oom_frame *f, struct oom_emit *e, const struct ears *h, struct oom_val x, uint64_t frames)
{
	struct oom_tape *t = f->t;
	const struct oom_conv1d conv1 = {.in = h->mels, .out = h->d, .kernel = 3, .bias = true},
				conv2 = {.in = h->d, .out = h->d, .kernel = 3, .bias = true};
	const uint16_t all = oom_len_const(t, e->m_images, frames);
	struct oom_val mask = oom_name(f, oom_new(t, "padded_mask", all, D(1), OOM_I64));

	x = oom_op_unary(t, OOM_GELU, oom_hooked(t, oom_op_conv1d(t, "conv1", x, &conv1, all)));
	x = oom_name(f, oom_op_mul(t, x, mask));
	return oom_rename(f, x, oom_op_unary(t, OOM_GELU, oom_op_conv1d(t, "conv2", x, &conv2, e->m_tokens)));
}

/* Three convolutions in two dimensions, their rows of all channels side by side, and a layer. */
static struct oom_val in_planes(struct oom_frame *f, struct oom_emit *e, const struct ears *h, struct oom_val x, uint64_t frames)
{
	static const char *const names[3] = {"conv2d1", "conv2d2", "conv2d3"};
	const struct oom_dim c = {h->channels, "downsample_hidden_size"};
	struct oom_tape *t = f->t;
	uint64_t rows = h->mels, columns = frames;

	for (int i = 0; i < 3; i++) {
		rows = half(rows);
		columns = half(columns);
		x = oom_op_conv_square(t, names[i], x, i ? c.n : 1, 3, true,
				       oom_len_const(t, oom_len_const(t, e->m_images, columns), rows), c);
		x = i ? x : oom_hooked(t, x);
		x = oom_name(f, oom_op_unary(t, OOM_GELU, x));
	}
	x = oom_op_copy(t, "contiguous", oom_op_copy(t, "cat", x));
	x = oom_op_view(t, x, e->m_tokens, (struct oom_dim){c.n * rows, "channels * bins"});
	return oom_name(f, oom_op_linear(t, "conv_out", x, (struct oom_dim){h->d, "d_model"}, 0));
}

/* The batch's recordings, joined without their padding and cut. */
static struct oom_val chunks(struct oom_frame *f, struct oom_emit *e, const struct ears *h, uint64_t frames, uint64_t longest)
{
	struct oom_tape *t = f->t;
	const uint16_t all = oom_len_const(t, t->m_b, frames);
	const enum oom_dtype dt = oom_loaded_dtype(t->plan);

	oom_input(t, "input_features", all, h->mels, dt);
	if (e->merged) {
		t->pixels += h->mels * frames;
		t->pixel_mask += frames;
	}
	oom_name(f, oom_new(t, "index", all, (struct oom_dim){h->mels, "num_mel_bins"}, dt));
	return oom_name(f, oom_new(t, "pad_sequence", oom_len_const(t, e->m_images, longest),
				   (struct oom_dim){h->mels, "num_mel_bins"}, dt));
}

/* Those states that are no padding, with their places. */
static struct oom_val placed(struct oom_frame *f, struct oom_emit *e, const struct ears *h, struct oom_val x, uint64_t valid)
{
	const struct oom_dim d = {h->d, "d_model"};
	struct oom_tape *t = f->t;
	struct oom_val place, index;

	oom_buffer(t, h->positions * h->d, OOM_F32);
	place = oom_new(t, "positions", e->m_len, d, OOM_F32);
	place = oom_op_cast(t, place, (enum oom_dtype)x.dt);
	x = oom_rename(f, x, oom_op_add(t, x, place));
	e->m_tokens = oom_len_const(t, t->m_b, valid);
	index = oom_name(f, oom_new(t, "valid_indices", e->m_tokens, D(1), OOM_I64));
	if (!h->planes)                         /* reshape(-1, d) of rows that lie transposed */
		x = oom_op_copy(t, "reshape", x);
	return oom_op_gather(t, "index_select", x, index, e->m_tokens, d);
}

/* The mean of neighbours, a norm, a layer; or a norm and two layers. */
static struct oom_val spoken(struct oom_frame *f, struct oom_emit *e, const struct ears *h, struct oom_val x, uint64_t valid)
{
	const struct oom_dim d = {h->d, "d_model"};
	struct oom_tape *t = f->t;
	struct oom_val index, next;

	t->scope = "audio_tower";
	if (!h->planes) {
		e->m_tokens = oom_len_const(t, t->m_b, valid / 2 ? valid / 2 : 1);
		index = oom_name(f, oom_new(t, "pool_indices", e->m_tokens, D(1), OOM_I64));
		x = oom_name(f, x);
		next = oom_new(t, "pool_indices + 1", e->m_tokens, D(1), OOM_I64);
		next = oom_op_gather(t, "index", x, next, e->m_tokens, d);
		x = oom_rename(f, x, oom_op_unary(t, OOM_SCALE, oom_op_add(t, oom_op_gather(t, "index", x, index, e->m_tokens, d), next)));
	}
	x = oom_op_layer_norm(t, "ln_post", x, 0, true, true);
	if (!h->planes)
		return oom_project(e, "proj", x, h->out, true);
	x = oom_activation(t, h->act, oom_project(e, "proj1", x, h->d, true));
	return oom_project(e, "proj2", x, h->out, true);
}

static struct oom_val hear(struct oom_emit *e, const struct ears *h)
{
	struct oom_tape *t = e->t;
	const uint64_t frames = t->plan->audio_seconds > 0 ? 100 * (uint64_t)t->plan->audio_seconds : h->chunk,
		       longest = frames < h->chunk ? frames : h->chunk, n = (frames + h->chunk - 1) / h->chunk,
		       valid = h->planes ? states(h, frames) : frames / h->chunk * half(h->chunk) + half(frames % h->chunk),
		       each = states(h, longest), window = h->planes ? each * (h->window / h->chunk ? h->window / h->chunk : 1) : each;
	const uint16_t images = e->m_images;
	struct layer l = {.h = *h};
	struct oom_frame f = {.t = t};
	struct oom_val x;

	t->scope = "audio_tower";
	e->m_images = oom_len_const(t, t->m_b, n);
	oom_tower_tokens(e, each);
	x = chunks(&f, e, h, frames, longest);
	x = h->planes ? in_planes(&f, e, h, x, longest) : in_lines(&f, e, h, x, longest);
	x = placed(&f, e, h, x, valid);
	l.m_tokens = e->m_tokens;
	l.m_len = oom_len_const(t, OOM_MONO_ONE, window < valid ? window : valid);
	x = oom_layers(t, (uint32_t)h->layers, NULL, block, &l, x);
	x = spoken(&f, e, h, x, valid);
	e->m_images = images;
	return oom_leave(&f, x);
}

/* The thinker's ears and eyes, of which a step runs those that it brings something for. */
static struct oom_val omni(struct oom_emit *e, bool planes)
{
	struct oom_tape *t = e->t;
	const bool merged = e->merged, hears = merged && t->plan->audio_seconds > 0, sees = merged && e->pictures;
	struct oom_weights idle;
	struct oom_val heard = oom_none(), x;
	struct ears h;

	if (!read_ears(&h, &e->part[2], planes))
		return oom_none();
	e->merged = hears;
	if (!hears)
		oom_weights_begin(t, &idle);
	if (!planes)                            /* audio_bos_eos_token, which no step uses */
		oom_param(t, "audio_bos_eos_token", 2, h.out, OOM_P_UNUSED);
	heard = hear(e, &h);
	if (!hears) {
		oom_discard(t, heard);
		oom_weights_end(t, &idle);
	} else if (sees) {
		oom_merge_before(e, heard);
	}
	e->merged = sees;
	if (hears && !sees)
		oom_weights_begin(t, &idle);
	x = oom_emit_qwen(e);
	if (hears && !sees) {
		oom_discard(t, x);
		oom_weights_end(t, &idle);
	}
	e->merged = merged;
	return hears && !sees ? heard : x;
}

struct oom_val oom_emit_omni(struct oom_emit *e)
{
	return omni(e, false);
}

struct oom_val oom_emit_omni3(struct oom_emit *e)
{
	return omni(e, true);
}

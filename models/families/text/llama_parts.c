/* Weights of Llama-shaped models that a step on text does not run.
 * Mllama's cross-attention layers are here as they run, too.
 * Reference: transformers 5.12, models/{mllama,phi4_multimodal}/modeling_*.py. */
#include "llama.h"

/* Mllama's cross-attention layers, which text alone passes by. */
void oom_llama_cross_unused(struct oom_tape *t, const struct oom_arch *a)
{
	const uint64_t layers = llama_of(a)->cross, h = a->d_model, q = a->n_heads * a->head_dim,
		       kv = a->n_kv_heads * a->head_dim;

	for (uint64_t i = 0; i < layers; i++) {
		oom_linear_unused(t, "q_proj", h, q, 0);
		oom_linear_unused(t, "k_proj", h, kv, 0);
		oom_linear_unused(t, "v_proj", h, kv, 0);
		oom_linear_unused(t, "o_proj", q, h, 0);
		oom_linear_unused(t, "gate_proj", h, a->d_ff, 0);
		oom_linear_unused(t, "up_proj", h, a->d_ff, 0);
		oom_linear_unused(t, "down_proj", a->d_ff, h, 0);
		t->scope = "cross_attn";
		oom_param(t, "q_norm.weight", 0, a->head_dim, OOM_P_NORM | OOM_P_UNUSED);
		oom_param(t, "k_norm.weight", 0, a->head_dim, OOM_P_NORM | OOM_P_UNUSED);
		oom_param(t, "input_layernorm.weight", 0, h, OOM_P_NORM | OOM_P_UNUSED);
		oom_param(t, "post_attention_layernorm.weight", 0, h, OOM_P_NORM | OOM_P_UNUSED);
		oom_param(t, "cross_attn_attn_gate", 0, 1, OOM_P_UNUSED);
		oom_param(t, "cross_attn_mlp_gate", 0, 1, OOM_P_UNUSED);
	}
}

/* MllamaTextCrossAttention; states and mask are the model's. */
static struct oom_val cross_attention(struct oom_frame *layer, const struct oom_arch *a, const struct oom_crossed *c,
				      struct oom_val x)
{
	const struct oom_dim h = {x.width, x.text}, qd = {a->n_heads * a->head_dim, "n_heads * head_dim"},
			     kd = {a->n_kv_heads * a->head_dim, "n_kv_heads * head_dim"};
	struct oom_tape *t = layer->t;
	struct oom_attn at = oom_attn_of(t, a);
	struct oom_frame f = {.t = t};
	struct oom_val q, k, v;

	at.caller = layer;
	at.causal = false;
	at.mask = c->mask;
	at.mk = c->tokens;
	at.sk = c->len;
	x = oom_arg(&f, x);
	q = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "q_proj", x, qd, 0)));
	q = oom_rename(&f, q, oom_norm(t, a->norm, "q_norm", q, a->head_dim));
	k = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "k_proj", c->x, kd, 0)));
	v = oom_name(&f, oom_op_heads(t, oom_op_linear(t, "v_proj", c->x, kd, 0)));
	k = oom_rename(&f, k, oom_norm(t, a->norm, "k_norm", k, a->head_dim));
	x = oom_attention_core(t, &at, q, k, v);
	return oom_leave(&f, oom_op_linear(t, "o_proj", x, h, 0));
}

/* gate.tanh() * x, named until the sum is there. */
static struct oom_val gated(struct oom_tape *t, const char *name, struct oom_val x)
{
	return oom_op_mul(t, oom_op_unary(t, OOM_TANH, oom_param(t, name, 0, 1, 0)), x);
}

struct oom_val oom_llama_cross_layer(struct oom_tape *t, const struct oom_arch *a, const struct oom_crossed *c,
				     struct oom_val x)
{
	struct oom_frame f = {.t = t};
	struct oom_val h;

	t->scope = "cross_attn";
	h = oom_name(&f, cross_attention(&f, a, c, oom_norm(t, a->norm, "input_layernorm", x, 0)));
	h = oom_rename(&f, h, oom_op_add(t, x, gated(t, "cross_attn_attn_gate", h)));
	x = h;
	h = oom_norm(t, a->norm, "post_attention_layernorm", x, 0);
	h = oom_name(&f, oom_llama_feed_forward(t, a, true, h));
	h = oom_rename(&f, h, oom_op_mul(t, c->rows, h));
	return oom_leave(&f, oom_op_add(t, x, gated(t, "cross_attn_mlp_gate", h)));
}

/* Of a module that the step never runs: a linear layer with a bias, which adapters find by its name, or,
 * without a name, `out` elements. */
struct idle {
	const char *name;
	uint64_t in, out;
};

static void unused(struct oom_tape *t, const struct idle *part, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (part[i].name)
			oom_linear_unused(t, part[i].name, part[i].in, part[i].out, OOM_BIAS);
		else
			oom_param(t, "weight", 0, part[i].out, OOM_P_UNUSED);
	}
}

/* Of the mel bins, what halving them time_reduction's times leaves (Phi4MultimodalAudioConfig). */
static uint64_t mels_left(struct oom_reader *r)
{
	uint64_t n = oom_read_count_or(r, "audio_config.input_size", 80);

	for (uint64_t i = oom_read_count_or(r, "audio_config.time_reduction", 8); i > 1; i /= 2)
		n = (n + 1) / 2;
	return n;
}

/* The vision embeddings of Phi-4: what stands once, and its layers. */
static void phi4_vision(struct oom_tape *t, struct oom_reader *r, uint64_t h)
{
	const uint64_t v = oom_read_count_or(r, "vision_config.hidden_size", 1152),
		       vf = oom_read_count_or(r, "vision_config.intermediate_size", 4304),
		       p = oom_read_count_or(r, "vision_config.patch_size", 14),
		       side = oom_read_count_or(r, "vision_config.crop_size", 448) / (p ? p : 1),
		       layers = oom_read_count_or(r, "vision_config.num_hidden_layers", 27),
		       channels = oom_read_count_or(r, "vision_config.num_channels", 3);
	const struct idle layer[] = {{NULL, 0, 4 * v}, {"k_proj", v, v},  {"v_proj", v, v}, {"q_proj", v, v},
				     {"out_proj", v, v}, {"fc1", v, vf}, {"fc2", vf, v}};
	const struct idle once[] = {
		{NULL, 0, 2 * v}, {NULL, 0, (channels * p * p + 1) * v}, {NULL, 0, side * side * v},
		{NULL, 0, 2 * v},
		/* pooling head, projections */
		{NULL, 0, 3 * v}, {NULL, 0, (v + 1) * 3 * v}, {"fc1", v, vf},
		{"fc2", vf, v}, {"img_projection_up", v, h}, {"img_projection_down", h, h}};

	unused(t, once, sizeof(once) / sizeof(once[0]));
	/* the pooling head's attention is nn.MultiheadAttention, whose projection is a class of its own */
	oom_linear_unused(t, "out_proj", v, v, OOM_BIAS | OOM_DERIVED);
	for (uint64_t i = 0; i < layers && i < OOM_MAX_LAYERS; i++)
		unused(t, layer, sizeof(layer) / sizeof(layer[0]));
}

/* What stands once in Phi-4's audio embeddings: its first projection, relative biases, and two projections to the
 * text's width. */
static void phi4_audio_once(struct oom_tape *t, struct oom_reader *r, uint64_t h, uint64_t d)
{
	const uint64_t c = oom_read_count_or(r, "audio_config.nemo_conv_channels", 1024), n = mels_left(r),
		       heads = oom_read_count_or(r, "audio_config.num_attention_heads", 16),
		       buckets = oom_read_count_or(r, "audio_config.bias_max_distance", 1000) *
				 (oom_read_bool(r, "audio_config.bias_symmetric", false) ? 1 : 2);
	const struct idle once[] = {{"out", c * n, d},
				    {NULL, 0, buckets * heads},
				    {"up_proj_for_speech", d, h},
				    {"down_proj_for_speech", h, h},
				    {"up_proj_for_vision_speech", d, h},
				    {"down_proj_for_vision_speech", h, h}};

	unused(t, once, sizeof(once) / sizeof(once[0]));
	for (int i = 0; i < 2; i++)             /* mean and deviation of the mel bins */
		oom_buffer(t, oom_read_count_or(r, "audio_config.input_size", 80), oom_loaded_dtype(t->plan));
}

static void phi4_audio_layers(struct oom_tape *t, struct oom_reader *r, uint64_t d)
{
	const uint64_t f = oom_read_count_or(r, "audio_config.intermediate_size", 1536),
		       e = oom_read_count_or(r, "audio_config.ext_pw_out_channel", 1024),
		       k = oom_read_count_or(r, "audio_config.kernel_size", 3),
		       m = oom_read_count_or(r, "audio_config.depthwise_multiplier", 1),
		       o = oom_read_count_or(r, "audio_config.depthwise_separable_out_channel", 1024),
		       layers = oom_read_count_or(r, "audio_config.num_blocks", 24);
	const struct idle layer[] = {
		{NULL, 0, 2 * d}, {"gate_up_proj", d, 2 * f}, {"down_proj", f, d}, {"q_proj", d, d},
		{"k_proj", d, d}, {"v_proj", d, d}, {"o_proj", d, d},
		/* the convolution module */
		{NULL, 0, 2 * d}, {NULL, 0, 2 * e}, {NULL, 0, (d + 1) * 2 * e}, {NULL, 0, (k + 1) * d * m},
		{NULL, 0, (d * m + 1) * o}, {NULL, 0, (d + 1) * e}, {NULL, 0, 2 * d},
		{"gate_up_proj", d, 2 * f}, {"down_proj", f, d}, {NULL, 0, 4 * d}};

	for (uint64_t i = 0; i < layers && i < OOM_MAX_LAYERS; i++)
		unused(t, layer, sizeof(layer) / sizeof(layer[0]));
}

/* The stages that halve the number of frames; the first of them is one convolution alone. */
static void phi4_audio_stages(struct oom_tape *t, struct oom_reader *r)
{
	const uint64_t c = oom_read_count_or(r, "audio_config.nemo_conv_channels", 1024);
	const struct idle conv[] = {{NULL, 0, 10 * c}, {NULL, 0, (c + 1) * c}};
	bool first = true;

	for (uint64_t i = oom_read_count_or(r, "audio_config.time_reduction", 8); i > 1; i /= 2) {
		unused(t, conv, first ? 1 : 2);
		first = false;
	}
}

/* Phi-4's image and audio embeddings: weights alone when the batch is text. */
void oom_llama_phi4_unused(struct oom_tape *t, const struct oom_arch *a)
{
	struct oom_reader reader = a->rd, *r = &reader;
	const uint64_t audio = oom_read_count_or(r, "audio_config.hidden_size", 1024);

	t->scope = "embed_tokens_extend";
	phi4_vision(t, r, a->d_model);
	phi4_audio_once(t, r, a->d_model, audio);
	phi4_audio_layers(t, r, audio);
	phi4_audio_stages(t, r);
}

/* Phi-3-vision and Phi-3.5-vision: OpenAI's CLIP ViT-L/14 of 336 pixels, whose sizes no key says, the
 * separators and the projection of modeling_phi3_v.py and image_embedding_phi3_v.py.  With Phi-3 mini's
 * 3,821,079,552 they are the 4,146,621,440 parameters that the hub counts. */
void oom_llama_phi3v_unused(struct oom_tape *t, const struct oom_arch *a)
{
	enum { D = 1024, FF = 4096, PATCH = 3 * 14 * 14, PLACES = 24 * 24 + 1, LAYERS = 24 };
	static const struct idle layer[] = {{NULL, 0, 4 * D}, {"k_proj", D, D}, {"v_proj", D, D}, {"q_proj", D, D},
					    {"out_proj", D, D}, {"fc1", D, FF}, {"fc2", FF, D}};
	const uint64_t h = a->d_model;
	const struct idle outer[] = {{NULL, 0, D}, {NULL, 0, PATCH * D}, {NULL, 0, PLACES * D}, {NULL, 0, 4 * D},
				     {NULL, 0, 2 * 4 * D}, {"img_projection.0", 4 * D, h},
				     {"img_projection.2", h, h}};

	t->scope = "vision_embed_tokens";
	unused(t, outer, sizeof(outer) / sizeof(outer[0]));
	for (int i = 0; i < LAYERS; i++)
		unused(t, layer, sizeof(layer) / sizeof(layer[0]));
}

/* The image tower beside ModernVBERT's text model (modernbert.c): SigLIP's layers, held and not run by a step on text.
 * Reference: transformers 5.12, models/modernvbert/, models/siglip/. */
#include "modernvbert.h"

#include "blocks/blocks.h"

void oom_modernvbert_read(struct oom_arch *a, struct modernvbert_tower *v)
{
	struct oom_reader *r = &a->rd;
	uint64_t patch, side;

	r->prefix = "vision_config.";
	v->width = oom_read_count_or(r, "hidden_size", 768);
	v->ff = oom_read_count_or(r, "intermediate_size", 3072);
	v->layers = oom_read_count_or(r, "num_hidden_layers", 12);
	patch = oom_read_count_or(r, "patch_size", 16);
	side = patch ? oom_read_count_or(r, "image_size", 224) / patch : 0;
	v->patch = oom_read_count_or(r, "num_channels", 3) * patch * patch;
	v->patches = side * side;
	r->prefix = "";
	v->shuffle = oom_read_count_or(r, "pixel_shuffle_factor", 4);
	a->tie = oom_read_bool(r, "tie_word_embeddings", false);
	a->classifier_dropout = oom_read_real(r, "classifier_dropout", 0);
	if (v->layers > 256 || side > 65536 || patch > 65536 || v->patch > UINT64_C(1) << 40 ||
	    v->width > 1 << 20 || v->ff > 1 << 20 || v->shuffle > 1024)
		oom_read_fail(r, "vision_config is too large: at most 256 layers");
}

/* One of SigLIP's linear layers, which adapters and quantisation find by their names. */
static void idle(struct oom_tape *t, const char *name, uint64_t in, uint64_t out, unsigned flags)
{
	oom_linear_unused(t, name, in, out, OOM_BIAS | flags);
}

static void idle_norm(struct oom_tape *t, uint64_t width)
{
	for (int i = 0; i < 2; i++)
		oom_param(t, "layer_norm", 0, width, OOM_P_NORM | OOM_P_UNUSED);
}

void oom_modernvbert_emit(struct oom_tape *t, const struct oom_arch *a, const struct modernvbert_tower *v)
{
	static const char *const projections[] = {"k_proj", "v_proj", "q_proj", "out_proj"};
	const uint64_t h = v->width;

	idle(t, "patch_embedding", v->patch, h, OOM_NO_LORA | OOM_NO_QUANT);     /* a convolution */
	oom_param(t, "position_embedding", v->patches, h, OOM_P_EMBEDDING | OOM_P_UNUSED);
	oom_buffer(t, v->patches, OOM_I64);
	/* the last one is the pooling head, around an nn.MultiheadAttention */
	for (uint64_t i = 0; i <= v->layers; i++) {
		if (i < v->layers) {
			idle_norm(t, h);
			for (int j = 0; j < 4; j++)
				idle(t, projections[j], h, h, 0);
		} else {
			oom_param(t, "probe", 0, h, OOM_P_UNUSED);
			idle(t, "in_proj", h, 3 * h, OOM_NO_LORA | OOM_NO_QUANT);
			idle(t, "out_proj", h, h, OOM_DERIVED);
		}
		idle_norm(t, h);
		idle(t, "fc1", h, v->ff, 0);
		idle(t, "fc2", v->ff, h, 0);
	}
	idle_norm(t, h);
	oom_linear_unused(t, "modality_projection", h * v->shuffle * v->shuffle, a->d_model, 0);
}

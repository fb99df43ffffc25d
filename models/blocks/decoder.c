/* The step of plain causal decoders.  Reference: transformers 5.12, models/llama/modeling_llama.py
 * LlamaModel.forward, LlamaForCausalLM.forward, whose shape the others copy. */
#include "decoder.h"

void oom_decoder_shares(struct oom_frame *f, const struct oom_arch *a, const struct oom_decoder *d,
			struct oom_decoder_layer *l, enum oom_dtype dt)
{
	const uint64_t window = d->window ? a->window : 0,
		       dim = d->rope_part ? oom_rot_dim(a) : a->head_dim;
	struct oom_tape *t = f->t;

	l->mask = oom_name_shared(f, oom_make_mask(t, true, window, dt, t->m_b, t->m_s, t->m_s));
	if (d->rope || d->rope_part)
		l->rope = oom_name_tables(f, oom_rope_tables(t, dim, dt, 2));
}

struct oom_val oom_decoder_model(struct oom_tape *t, const struct oom_arch *a,
				 const struct oom_decoder *d, struct oom_val *embed)
{
	union {
		struct oom_decoder_layer base;
		_Alignas(max_align_t) unsigned char room[OOM_CTX_BYTES];
	} l = {.base = {.a = a, .mask = oom_none(), .rope = {oom_none(), oom_none()}}};
	const uint64_t width = a->d_embed ? a->d_embed : a->d_model;
	const size_t size = d->layer_size ? d->layer_size : sizeof(l.base);
	const uint32_t depth = (uint32_t)oom_depth(t, a->n_layers);
	uint8_t last[OOM_MAX_LAYERS] = {0};
	const uint8_t *kind = d->kinds ? a->kind : d->last_apart ? last : NULL;
	struct oom_frame f = {.t = t};
	struct oom_val x, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	t->scope = d->embed;
	*embed = oom_param(t, "weight", a->vocab, width, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *embed, ids, a->vocab,
				   a->d_embed ? D(a->d_embed) : D(a->d_model));
	if (d->scaled_embed)
		x = oom_op_unary(t, OOM_SCALE, x);
	x = oom_name(&f, oom_input_grads(t, x));
	if (d->position_ids) {                  /* the layers' argument, and a name of the model */
		ids = oom_name_shared(&f, oom_position_ids(t));
		oom_name(&f, ids);
	}
	if (d->prepare)
		x = d->prepare(&f, a, &l.base, x);
	else
		oom_decoder_shares(&f, a, d, &l.base, (enum oom_dtype)x.dt);
	if (depth && depth <= OOM_MAX_LAYERS)
		last[depth - 1] = 1;
	x = oom_layers_sized(t, depth, kind, d->block, &l, size, x);
	x = d->finish ? d->finish(t, a, x) : oom_norm(t, a->norm, d->norm, x, 0);
	oom_forget_shared(&f);
	return oom_leave(&f, x);
}

struct oom_val oom_decoder_step(struct oom_tape *t, const struct oom_arch *a,
				const struct oom_decoder *d)
{
	struct oom_val embed, x = oom_decoder_model(t, a, d, &embed);

	return oom_causal_head(t, a, x, embed, d->head ? d->head : "lm_head");
}

/* The step of plain causal decoders.  Reference: transformers 5.12, models/llama/modeling_llama.py
 * LlamaModel.forward, LlamaForCausalLM.forward, whose shape the others copy. */
#include "decoder.h"

void oom_decoder_shares(struct oom_frame *f, const struct oom_arch *a, const struct oom_decoder *d,
			struct oom_decoder_layer *l, enum oom_dtype dt)
{
	struct oom_tape *t = f->t;

	l->mask = oom_name_shared(f, oom_make_mask(t, true, 0, dt, t->m_b, t->m_s, t->m_s));
	if (!d->rope)
		return;
	l->rope = oom_rope_tables(t, a->head_dim, dt, 2);
	l->rope.cos = oom_name_shared(f, l->rope.cos);
	l->rope.sin = oom_name_shared(f, l->rope.sin);
}

/* XModel.forward: its names are gone when the head begins. */
static struct oom_val model(struct oom_tape *t, const struct oom_arch *a,
			    const struct oom_decoder *d, struct oom_val *embed)
{
	union {
		struct oom_decoder_layer base;
		_Alignas(max_align_t) unsigned char room[OOM_CTX_BYTES];
	} l = {.base = {.a = a, .mask = oom_none(), .rope = {oom_none(), oom_none()}}};
	const uint64_t width = a->d_embed ? a->d_embed : a->d_model;
	const size_t size = d->layer_size ? d->layer_size : sizeof(l.base);
	struct oom_frame f = {.t = t};
	struct oom_val x, ids = oom_input(t, "input_ids", t->m_bs, 1, OOM_I64);

	t->scope = d->embed;
	*embed = oom_param(t, "weight", a->vocab, width, OOM_P_EMBEDDING);
	x = oom_op_embedding_param(t, *embed, ids, a->vocab,
				   a->d_embed ? D(a->d_embed) : D(a->d_model));
	x = oom_name(&f, oom_input_grads(t, x));
	if (d->position_ids) {                  /* the layers' argument, and a name of the model */
		ids = oom_name_shared(&f, oom_new(t, "position ids", t->m_s, D(1), OOM_I64));
		oom_name(&f, ids);
	}
	if (d->prepare)
		x = d->prepare(&f, a, &l.base, x);
	else
		oom_decoder_shares(&f, a, d, &l.base, (enum oom_dtype)x.dt);
	x = oom_layers_sized(t, (uint32_t)oom_depth(t, a->n_layers), d->kinds ? a->kind : NULL,
			     d->block, &l, size, x);
	oom_forget_shared(&f);
	x = d->finish ? d->finish(t, a, x) : oom_norm(t, a->norm, d->norm, x, 0);
	return oom_leave(&f, x);
}

struct oom_val oom_decoder_step(struct oom_tape *t, const struct oom_arch *a,
				const struct oom_decoder *d)
{
	struct oom_val embed, x = model(t, a, d, &embed);

	return oom_causal_tail(t, a, x, embed);
}

/* A rank's step as pieces that the replay plays (play.c): the same bytes that rank.c sums up. */
#include <string.h>

#include "rank.h"

/* Logits and what the loss makes of them, or what comes a moment later, whichever is more. */
static size_t loss_blocks(const struct oom_megatron *m, double *out)
{
	const double T = oom_mg_tokens(m, (double)m->seq), h = (double)m->hidden,
		     v = (double)m->padded_vocab / (double)m->tp, low = 2 * T * v, high = 4 * T * v,
		     head[] = {low, 2 * T * h, 2 * v * h}, all = oom_mg_logit_bytes(m);
	size_t n = 0;

	if (all <= head[0] + head[1] + head[2]) {
		memcpy(out, head, sizeof(head));
		return 3;
	}
	/* as many fp32 ones as there are, the others in 16 bit */
	for (double left = all; left >= low && n < MG_FLOW_LOSS; left -= out[n++])
		out[n] = left >= high ? high : low;
	return n;
}

static void fill_layer(const struct oom_megatron *m, bool experts, struct mg_flow_layer *l)
{
	const double T = oom_mg_tokens(m, (double)m->seq);

	oom_mg_layer_pieces(m, experts, (double)m->seq, &l->kept, &l->again);
	oom_mg_layer_matrices(m, experts, &l->matrices);
	l->hidden = 2 * T * (double)m->hidden / (m->sequence_parallel ? (double)m->tp : 1);
	l->wide = oom_mg_layer(m, experts, (double)m->seq, 0).transient - l->hidden;
	l->gathered = m->sequence_parallel ? 2 * T * (double)m->hidden : 0;
	l->attention = oom_mg_attention_gradients(m, (double)m->seq);
}

enum oom_status oom_mg_flow(const struct oom_megatron *m, int64_t r, struct mg_flow *f,
			    struct oom_error *err)
{
	enum oom_status st;
	struct mg_layers layers = {.known = {false, false}};
	struct chunk_sums s;

	memset(f, 0, sizeof(*f));
	if (m->stack == OOM_MG_T5)
		return OOM_ERR_LIMIT;
	st = oom_mg_next_rank(m, r, &layers, &f->rank, err);
	if (st)
		return st;
	f->n_chunks = oom_mg_chunks(m, r, f->chunk);
	oom_mg_add_up(m, r, f->chunk, f->n_chunks, &layers, &s);
	fill_layer(m, false, &f->layer[0]);
	if (m->experts)
		fill_layer(m, true, &f->layer[1]);
	for (size_t i = 0; i < f->n_chunks; i++) {
		const struct mg_params p = oom_mg_params(m, &f->chunk[i], r == m->pp - 1);
		const double T = oom_mg_tokens(m, (double)m->seq) /
				 (m->sequence_parallel ? (double)m->tp : 1);

		f->ends[i] = oom_pipe_buffers(m, &f->chunk[i]) +
			     (double)f->chunk[i].mtp * 12 * T * (double)m->hidden +
			     (f->chunk[i].embedding && m->hidden_dropout > 0 ? T * (double)m->hidden : 0);
		f->end_elems[i] = p.dense + p.expert;
		for (int kind = 0; kind < 2; kind++)
			for (size_t k = 0; k < f->layer[kind].matrices.n; k++)
				f->end_elems[i] -= f->layer[kind].matrices.elems[k] *
						   (double)(kind ? f->chunk[i].moe : f->chunk[i].dense);
		f->n_loss = f->chunk[i].loss ? loss_blocks(m, f->loss) : f->n_loss;
	}
	f->rest = s.late + s.margin;
	if (f->n_loss && f->n_loss < MG_FLOW_LOSS)
		f->loss[f->n_loss++] = s.head;
	else
		f->rest += s.head;
	f->recomputed = m->recompute == OOM_MG_RC_FULL && !m->recompute_uniform ? m->recompute_layers : 0;
	/* distributed/param_and_grad_buffer.py has a buffer of weights for the distributed optimizer */
	f->flat_weights = m->distributed_optimizer || m->pipe_engine;
	f->flat_states = m->pipe_engine;
	f->shards = oom_mg_optimizer_ranks(m, (double)(m->dp * m->cp));
	f->made_bytes = m->precision == OOM_MG_FP32 ? 4 : 2;
	f->grad_bytes = oom_pipe_own_gradients(m);
	f->grads_stay = oom_pipe_divides(m);
	oom_mg_order(m, r, f->n_chunks, &f->order);
	oom_pipe_step(m, s.params.dense + s.params.expert, (double)(m->dp * m->cp), &f->step);
	return OOM_OK;
}

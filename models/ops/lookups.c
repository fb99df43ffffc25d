/* Embeddings and gathers: rows picked by an index. */
#include "ops.h"

struct oom_val oom_embedding_lookup(struct oom_tape *t, struct oom_val w, struct oom_val ids,
				    struct oom_dim dim)
{
	const bool rg = oom_wants_grad(t, w);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_EMBEDDING, "embedding");
		oom_node_edge(t, n, w);
		oom_node_save(t, n, ids);
		if (n >= 0) {
			t->nodes[n].aux_mono = ids.mono;
			t->nodes[n].aux_width = ids.width;
		}
	}
	y = oom_new(t, "embedding", ids.mono, (struct oom_dim){dim.n * ids.width, dim.text},
		    (enum oom_dtype)w.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, ids);
	return y;
}

struct oom_val oom_op_embedding_param(struct oom_tape *t, struct oom_val w, struct oom_val ids,
				      uint64_t vocab, struct oom_dim dim)
{
	struct oom_val y, rows;

	if (t->merge)
		t->table = w;
	/* the words alone, before virtual tokens join them */
	if (oom_plan_prompted(t->plan) && !t->prompted && ids.mono == t->m_bs && ids.sto < 0)
		ids.mono = oom_len_minus(t, t->m_b, (uint64_t)t->plan->virtual_tokens);
	if (w.node <= -2)
		w = oom_saved_copy(t, oom_table_module(&t->params[-2 - w.node]), w);
	oom_quantised_table(t, vocab, dim.n);
	rows = oom_token_rows(t, w);
	y = oom_embedding_lookup(t, rows, oom_keep(ids), dim);
	if (rows.node != w.node)
		oom_drop(t, rows);
	y = oom_lora_embedding(t, y, w, ids, dim);
	oom_done(t, ids);
	return y;
}

struct oom_val oom_op_embedding(struct oom_tape *t, const char *name, struct oom_val ids,
				uint64_t vocab, struct oom_dim dim, uint32_t flags)
{
	const char *scope = t->scope;
	struct oom_val w, y;

	t->scope = name;
	w = oom_param(t, "weight", vocab, dim.n, OOM_P_EMBEDDING | flags);
	y = oom_op_embedding_param(t, w, ids, vocab, dim);
	t->scope = scope;
	return y;
}

struct oom_val oom_op_gather(struct oom_tape *t, const char *name, struct oom_val x,
			     struct oom_val index, uint16_t mono, struct oom_dim width)
{
	const bool rg = oom_wants_grad(t, x);
	struct oom_val y;
	int32_t n = -1;

	if (rg) {
		n = oom_node(t, OOM_NODE_GATHER, name);
		oom_node_edge(t, n, x);
		oom_node_save(t, n, index);
	}
	y = oom_new(t, name, mono, width, (enum oom_dtype)x.dt);
	if (rg)
		y = oom_node_out(t, n, 0, y);
	oom_done(t, x);
	oom_done(t, index);
	return y;
}

/* What a played rank holds from one pass to the next: rows of rank.c, one block each; weights, gradients and
 * states, a tensor for each matrix. */
#include "playing.h"

void oom_play_come(struct playing *g, enum oom_mg_row_kind kind)
{
	const struct oom_mg_rank *k = &g->f->rank;

	for (size_t i = 0; i < k->n_rows; i++)
		if (k->row[i].kind == kind && g->held[i] < 0)
			g->held[i] = play_put(g, (double)k->row[i].bytes);
}

void oom_play_go(struct playing *g, enum oom_mg_row_kind kind)
{
	for (size_t i = 0; i < g->f->rank.n_rows; i++)
		if (g->f->rank.row[i].kind == kind)
			play_drop(g, &g->held[i]);
}

void oom_play_put(struct playing *g, enum per_matrix which, const struct mg_matrices *w, int64_t at,
			 double bytes)
{
	int32_t *mine = g->per[which] + at * MG_MATRICES;

	for (size_t i = 0; i < w->n; i++)
		if (mine[i] < 0)
			mine[i] = play_put(g, bytes * w->elems[i]);
}

/* Those of the embedding and the head. */
struct mg_matrices oom_play_ends(const struct mg_flow *f, size_t c)
{
	return (struct mg_matrices){.elems = {f->end_elems[c]}, .n = f->end_elems[c] > 0};
}

void oom_play_put_all(struct playing *g, enum per_matrix which, double bytes)
{
	for (size_t c = 0; c < g->f->n_chunks; c++) {
		const struct mg_matrices last = oom_play_ends(g->f, c);

		for (int64_t i = 0; i < play_layers(&g->f->chunk[c]); i++)
			oom_play_put(g, which, &play_kind(g, c, i)->matrices, g->first[c] + i, bytes);
		oom_play_put(g, which, &last, g->layers + (int64_t)c, bytes);
	}
}

void oom_play_drop_all(struct playing *g, enum per_matrix which)
{
	for (int64_t i = 0; i < (g->layers + (int64_t)g->f->n_chunks) * MG_MATRICES; i++)
		play_drop(g, &g->per[which][i]);
}

static double bytes_of(const struct mg_flow *f, enum oom_mg_row_kind kind)
{
	double sum = 0;

	for (size_t i = 0; i < f->rank.n_rows; i++)
		sum += f->rank.row[i].kind == kind ? (double)f->rank.row[i].bytes : 0;
	return sum;
}

/* A rank's part of an optimizer that is divided: of the matrices in a row the first ones, whole, until it has
 * what is its own (distrib_optimizer.py _build_model_gbuf_range: the buffer is cut, not each tensor). */
static void put_part(struct playing *g, enum per_matrix which, double bytes)
{
	const struct mg_flow *f = g->f;
	const double elems = (double)(f->rank.params + f->rank.expert_params), mine = elems / f->shards;
	double left = mine;

	for (size_t c = 0; elems > 0 && c < f->n_chunks; c++) {
		for (int64_t i = 0; i <= play_layers(&f->chunk[c]); i++) {
			const bool last = i == play_layers(&f->chunk[c]);
			const struct mg_matrices w = last ? oom_play_ends(f, c) :
							    play_kind(g, c, i)->matrices;
			const int64_t at = last ? g->layers + (int64_t)c : g->first[c] + i;

			for (size_t k = 0; k < w.n && left > 0; k++) {
				const double n = w.elems[k] < left ? w.elems[k] : left;

				g->per[which][at * MG_MATRICES + (int64_t)k] = play_put(g, bytes * n / mine);
				left -= n;
			}
		}
	}
}

/* Weights as the model made them, then the buffers that they are copied into; master weights. */
void oom_play_load(struct playing *g)
{
	const struct mg_flow *f = g->f;
	const double elems = (double)(f->rank.params + f->rank.expert_params);

	oom_play_put_all(g, WEIGHT, f->flat_weights ? f->made_bytes :
						      bytes_of(f, OOM_MG_ROW_WEIGHTS) / elems);
	if (f->flat_weights)
		oom_play_come(g, OOM_MG_ROW_WEIGHTS);
	oom_play_come(g, OOM_MG_ROW_GRADS);
	if (f->flat_weights)
		oom_play_drop_all(g, WEIGHT);
	if (f->flat_states)
		oom_play_come(g, OOM_MG_ROW_MASTER);
	else
		put_part(g, MASTER, bytes_of(f, OOM_MG_ROW_MASTER));
	oom_play_come(g, OOM_MG_ROW_FIXED);
}

void oom_play_states(struct playing *g)
{
	const double moments = bytes_of(g->f, OOM_MG_ROW_OPTIMIZER);

	if (g->f->flat_states) {
		oom_play_come(g, OOM_MG_ROW_OPTIMIZER);
	} else if (!g->stepped) {
		put_part(g, MOMENT, moments / 2);
		put_part(g, MOMENT_2, moments / 2);
	}
	g->stepped = true;
}

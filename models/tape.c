/* Recording: rows, references, nodes, parameters.  See tape.h for what a tape is, layers.c for
 * stacks of layers. */
#include "tape.h"

#include <stdlib.h>
#include <string.h>

#include "ops.h"

/* ---- memory: every array grows by doubling and is kept for the next recording ---- */

static bool grow(struct oom_tape *t, void **p, size_t *cap, size_t need, size_t size)
{
	/* a usual tape: untouched pages cost nothing, a copy does */
	size_t want = *cap ? *cap : 1024;
	void *q;

	if (need <= *cap)
		return true;
	while (want < need)
		want *= 2;
	q = realloc(*p, want * size);
	if (!q) {
		t->status = OOM_ERR_MEMORY;
		return false;
	}
	*p = q;
	*cap = want;
	return true;
}

void oom_tape_release(struct oom_tape *t)
{
	if (!t)
		return;
	free(t->rows);
	free(t->refs);
	free(t->nodes);
	free(t->params);
	free(t->ckpts);
	for (int i = 0; i < OOM_STREAMS; i++)
		free(t->streams[i].ev);
	memset(t, 0, sizeof(*t));
}

void oom_tape_reset(struct oom_tape *t, const struct oom_arch *arch, const struct oom_plan *plan)
{
	t->arch = arch;
	t->plan = plan;
	t->status = OOM_OK;
	t->n_rows = t->n_nodes = t->n_params = t->n_ckpts = t->cursor = t->n_ctx = t->n_held = 0;
	t->stack_node = -1;
	t->n_layers = t->n_reps = t->n_vars = t->n_monos = t->n_conds = 0;
	for (int i = 0; i < OOM_STREAMS; i++)
		t->streams[i].n = 0;
	memset(t->flops, 0, sizeof(t->flops));
	memset(t->flops_attn, 0, sizeof(t->flops_attn));
	memset(t->flops_fwd, 0, sizeof(t->flops_fwd));
	memset(t->flops_again, 0, sizeof(t->flops_again));
	t->buffer_bytes = t->buffer_rounded = t->input_bytes = t->input_rounded = 0;
	t->grad = t->train = true;
	t->warning = NULL;
	t->side = t->output = oom_none();
	t->in_bwd = t->recompute = t->stopped = t->packing = t->in_layer = t->dry = t->approximate =
		t->frozen = false;
	t->shift = OOM_SHIFT_LABELS;
	t->merge = NULL;
	t->pixels = 0;
	t->amp = false;
	t->leaf = (struct oom_leaf){.x = oom_none(), .copy = oom_none()};
	t->amp_region = t->amp_seq = 0;
	t->packs = t->pack_limit = 0;
	t->group = t->n_groups = 0;
	t->mult = 1;
	t->scope = "";
	t->vocab = 0;
	t->stream = OOM_STREAM_FWD;
	t->monos[0].n = 0;
	t->n_monos = 1;
	t->m_b = oom_mono_of(t, OOM_MONO_ONE, OOM_VAR_B, 0, 0);
	t->m_s = oom_mono_of(t, OOM_MONO_ONE, OOM_VAR_S, 0, 0);
	t->m_bs = oom_mono_mul(t, t->m_b, t->m_s);
	t->m_bss = oom_mono_mul(t, t->m_bs, t->m_s);
}

/* ---- monomials ---- */

static uint8_t var_of(struct oom_tape *t, enum oom_var_base base, uint8_t op, uint32_t k)
{
	for (size_t i = 0; i < t->n_vars; i++)
		if (t->vars[i].base == base && t->vars[i].op == op && t->vars[i].k == k)
			return (uint8_t)i;
	if (t->n_vars == sizeof(t->vars) / sizeof(t->vars[0])) {
		t->status = oom_error_set(&t->err, OOM_ERR_LIMIT,
					  "too many size variables in one model");
		return 0;
	}
	t->vars[t->n_vars] = (struct oom_var){.base = (uint8_t)base, .op = op, .k = k};
	return (uint8_t)t->n_vars++;
}

static uint16_t intern(struct oom_tape *t, struct oom_mono m)
{
	for (int i = 1; i < m.n; i++)           /* sorted: few elements */
		for (int j = i; j > 0 && m.var[j] < m.var[j - 1]; j--) {
			uint8_t x = m.var[j];

			m.var[j] = m.var[j - 1];
			m.var[j - 1] = x;
		}
	for (size_t i = 0; i < t->n_monos; i++)
		if (t->monos[i].n == m.n && !memcmp(t->monos[i].var, m.var, m.n))
			return (uint16_t)i;
	if (t->n_monos == sizeof(t->monos) / sizeof(t->monos[0])) {
		t->status = oom_error_set(&t->err, OOM_ERR_LIMIT,
					  "too many kinds of sizes in one model");
		return 0;
	}
	t->monos[t->n_monos] = m;
	return (uint16_t)t->n_monos++;
}

uint16_t oom_mono_of(struct oom_tape *t, uint16_t m, enum oom_var_base base, uint8_t op, uint32_t k)
{
	struct oom_mono x = t->monos[m];

	if (x.n == sizeof(x.var)) {
		t->status = oom_error_set(&t->err, OOM_ERR_LIMIT, "a size has too many factors");
		return m;
	}
	x.var[x.n++] = var_of(t, base, op, k);
	return intern(t, x);
}

uint16_t oom_mono_chunks(struct oom_tape *t, uint16_t m, uint32_t k, int more)
{
	if (k < 1 || k >= 1u << 24) {
		t->status = oom_error_set(&t->err, OOM_ERR_INVALID,
					  "chunks of %u tokens: expected 1 to 2^24 - 1", k);
		return m;
	}
	return oom_mono_of(t, m, OOM_VAR_S, 8, k << 8 | (uint32_t)(more + 128));
}

uint16_t oom_mono_mul(struct oom_tape *t, uint16_t a, uint16_t b)
{
	struct oom_mono x = t->monos[a];

	for (int i = 0; i < t->monos[b].n; i++) {
		if (x.n == sizeof(x.var)) {
			t->status = oom_error_set(&t->err, OOM_ERR_LIMIT,
						  "a size has too many factors");
			return a;
		}
		x.var[x.n++] = t->monos[b].var[i];
	}
	return intern(t, x);
}

static uint64_t power_of_two_part(uint64_t x, uint64_t b, uint64_t k)
{
	uint64_t all, p = 1;

	if (__builtin_mul_overflow(x, b, &all) || all > (uint64_t)1 << 62)
		return UINT64_MAX;
	while (p < (all + k - 1) / k)
		p *= 2;
	return p < all ? p : all;
}

/* x up to whole units, and `halves` half units more. */
static uint64_t padded_part(uint64_t x, uint64_t unit, int halves)
{
	const uint64_t whole = (x + unit - 1) / unit * unit;

	if (halves >= 0)
		return whole + unit * (uint64_t)halves / 2;
	return whole > unit * (uint64_t)-halves / 2 ? whole - unit * (uint64_t)-halves / 2 : 0;
}

uint16_t oom_mono_padded(struct oom_tape *t, uint16_t m, uint64_t unit, int halves)
{
	if (unit < 1 || unit >= 1u << 24) {
		t->status = oom_error_set(&t->err, OOM_ERR_INVALID,
					  "lengths padded to %llu: expected 1 to 2^24 - 1",
					  (unsigned long long)unit);
		return m;
	}
	return oom_mono_of(t, m, OOM_VAR_S, 11, (uint32_t)unit << 8 | (uint32_t)(halves + 128));
}

uint64_t oom_mono_eval(const struct oom_tape *t, uint16_t m, uint64_t b, uint64_t s, uint64_t tgt)
{
	const uint64_t base[OOM_VAR_BASES] = {b, s, tgt};
	uint64_t v = 1;

	for (int i = 0; i < t->monos[m].n; i++) {
		const struct oom_var *w = &t->vars[t->monos[m].var[i]];
		uint64_t x = base[w->base];

		switch (w->op) {
		case 1: x = (x + w->k - 1) / w->k * w->k; break;
		case 2: x = (x + w->k - 1) / w->k; break;
		case 3: x += w->k; break;
		case 4: x = x < w->k ? x : w->k; break;
		case 5: x = x > w->k ? x - w->k : 0; break;
		case 6: x = w->k; break;
		case 7: x += b == 1 ? w->k : 0; break;
		case 8:
			x = (x + (w->k >> 8) - 1) / (w->k >> 8) + (w->k & 255);
			x = x > 128 ? x - 128 : 0;
			break;
		case 9: x = b == 1 ? 0 : x + w->k; break;
		case 10: x = power_of_two_part(x, b, w->k); break;
		case 11: x = padded_part(x, w->k >> 8, (int)(w->k & 255) - 128); break;
		default: break;
		}
		if (__builtin_mul_overflow(v, x, &v))
			return UINT64_MAX;
	}
	return v;
}

uint64_t oom_mono_now(const struct oom_tape *t, uint16_t m)
{
	return oom_mono_eval(t, m, t->val_b, t->val_s, t->val_t);
}

bool oom_cond_more(struct oom_tape *t, uint16_t m, uint64_t w, uint16_t m2, uint64_t w2)
{
	const struct oom_cond c = {m, m2, w, w2,
				   (double)oom_mono_now(t, m) * (double)w >
					   (double)oom_mono_now(t, m2) * (double)w2};

	for (size_t i = 0; i < t->n_conds; i++)
		if (t->conds[i].mono == m && t->conds[i].mono2 == m2 && t->conds[i].width == w &&
		    t->conds[i].width2 == w2)
			return c.above;
	if (t->n_conds < OOM_MAX_COND)
		t->conds[t->n_conds++] = c;
	else
		t->status = oom_error_set(&t->err, OOM_ERR_LIMIT,
					  "too many size conditions in one model");
	return c.above;
}

bool oom_cond_above(struct oom_tape *t, uint16_t m, uint64_t limit)
{
	return oom_cond_more(t, m, 1, OOM_MONO_ONE, limit);
}

/* ---- events and storages ---- */

static void emit(struct oom_tape *t, int32_t code)
{
	struct oom_stream *s = &t->streams[t->stream];

	if (!grow(t, (void **)&s->ev, &s->cap, s->n + 1, sizeof(*s->ev)))
		return;
	s->ev[s->n++] = code;
}

void oom_tape_event(struct oom_tape *t, int32_t row, enum oom_event_kind kind)
{
	emit(t, row << 2 | (int32_t)kind);
}

void oom_tape_mark(struct oom_tape *t, size_t rep, bool end)
{
	emit(t, -1 - (int32_t)(2 * rep) - (end ? 1 : 0));
}

struct oom_val oom_new(struct oom_tape *t, const char *name, uint16_t mono, struct oom_dim width,
		       enum oom_dtype dt)
{
	struct oom_val v = {.sto = -1,
			    .node = -1,
			    .mono = mono,
			    .width = width.n,
			    .text = width.text,
			    .dt = (uint8_t)dt};
	struct oom_row *r;
	size_t cap_refs = t->cap_rows;

	if (t->stopped || !width.n)
		return v;
	if (!grow(t, (void **)&t->refs, &cap_refs, t->n_rows + 1, sizeof(*t->refs)) ||
	    !grow(t, (void **)&t->rows, &t->cap_rows, t->n_rows + 1, sizeof(*t->rows)))
		return v;
	r = &t->rows[t->n_rows];
	*r = (struct oom_row){.width = width.n,
			      .name = name,
			      .scope = t->scope,
			      .text = width.text,
			      .mono = mono,
			      .group = t->group,
			      .mult = t->mult,
			      .dt = (uint8_t)dt,
			      .born = (uint8_t)t->stream,
			      .backward = t->in_bwd,
			      .cat = t->in_bwd && t->recompute && t->grad ? OOM_CAT_RECOMPUTE :
									    OOM_CAT_TEMP};
	if (width.n == t->vocab && t->vocab && mono != OOM_MONO_ONE)
		r->cat = OOM_CAT_LOGITS;
	t->refs[t->n_rows] = 1;
	v.sto = (int32_t)t->n_rows++;
	emit(t, v.sto << 2 | OOM_EV_ALLOC);
	return v;
}

struct oom_val oom_new_like(struct oom_tape *t, const char *name, struct oom_val x,
			    enum oom_dtype dt)
{
	struct oom_val v = oom_new(t, name, x.mono, (struct oom_dim){x.width, x.text}, dt);

	v.perm = x.perm;
	return v;
}

void oom_ref(struct oom_tape *t, int32_t sto)
{
	if (sto >= 0)
		t->refs[sto]++;
}

void oom_unref(struct oom_tape *t, int32_t sto)
{
	const struct oom_row *r;

	if (sto < 0 || --t->refs[sto])
		return;
	r = &t->rows[sto];
	/* A row of the middle layer that outlives its layers dies once for all the layers it
	 * stands for. */
	emit(t,
	     sto << 2 | (r->mult > 1 && !(t->in_layer && t->group == r->group) ? OOM_EV_FREE_ALL :
										 OOM_EV_FREE));
}

void oom_drop(struct oom_tape *t, struct oom_val x)
{
	oom_unref(t, x.sto);
}

void oom_done(struct oom_tape *t, struct oom_val x)
{
	if (!x.kept)
		oom_unref(t, x.sto);
}

struct oom_val oom_share(struct oom_tape *t, struct oom_val x)
{
	oom_ref(t, x.sto);
	x.kept = false;
	return x;
}

struct oom_val oom_scratch_hold(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width,
				enum oom_dtype dt)
{
	return oom_new(t, name, mono, (struct oom_dim){width, NULL}, dt);
}

void oom_scratch(struct oom_tape *t, const char *name, uint16_t mono, uint64_t width,
		 enum oom_dtype dt)
{
	oom_drop(t, oom_scratch_hold(t, name, mono, width, dt));
}

/* ---- parameters ---- */

struct oom_val oom_param(struct oom_tape *t, const char *name, uint64_t rows, uint64_t cols,
			 uint32_t flags)
{
	struct oom_param *p;
	struct oom_val v = {.sto = -1, .mono = OOM_MONO_ONE};
	uint64_t elems;

	if (t->cursor == t->n_params) {
		if (!grow(t, (void **)&t->params, &t->cap_params, t->n_params + 1,
			  sizeof(*t->params)))
			return v;
		if (__builtin_mul_overflow(rows ? rows : 1, cols, &elems) || elems >> 52) {
			t->status = oom_error_set(&t->err, OOM_ERR_INVALID,
						  "%s.%s has more than 2^52 elements", t->scope,
						  name);
			elems = 0;
		}
		p = &t->params[t->n_params++];
		*p = (struct oom_param){.elems = elems,
					.name = name,
					.scope = t->scope,
					.flags = flags | (t->frozen ? OOM_P_FROZEN : 0),
					.rows = (uint32_t)rows,
					.cols = (uint32_t)cols,
					.count = t->mult,
					.in_layer = t->group != 0,
					.grad = -1,
					.amp = -1};
		oom_param_policy(t, p);
	}
	p = &t->params[t->cursor];
	v.width = p->elems;
	v.dt = p->dt;
	v.node = -2 - (int32_t)t->cursor++;
	v.rg = p->trainable && t->grad;
	return v;
}

void oom_param_stacked(struct oom_tape *t, struct oom_val p, uint64_t mid)
{
	if (p.node <= -2)
		t->params[-2 - p.node].mid = (uint32_t)mid;
}

void oom_buffer(struct oom_tape *t, uint64_t elems, enum oom_dtype dt)
{
	uint64_t n = elems * oom_dtype_bytes(dt);

	if (t->stream != OOM_STREAM_FWD)        /* the evaluation pass meets the same ones again */
		return;
	t->buffer_bytes += n * t->mult;
	t->buffer_rounded += (n + 511) / 512 * 512 * t->mult;
}

/* ---- nodes ---- */

int32_t oom_node(struct oom_tape *t, uint8_t kind, const char *name)
{
	struct oom_node *n;

	if (!t->grad || t->packing)
		return -1;
	if (!grow(t, (void **)&t->nodes, &t->cap_nodes, t->n_nodes + 1, sizeof(*t->nodes)))
		return -1;
	n = &t->nodes[t->n_nodes];
	memset(n, 0, sizeof(*n));
	n->kind = kind;
	n->name = name;
	n->scope = t->scope;
	return (int32_t)t->n_nodes++;
}

void oom_node_edge(struct oom_tape *t, int32_t node, struct oom_val x)
{
	struct oom_node *n;

	if (node < 0)
		return;
	n = &t->nodes[node];
	n->edge[n->n_edge++] = (struct oom_edge){.to = x.rg ? x.node : -1,
						 .slot = x.slot,
						 .width = x.width,
						 .mono = x.mono,
						 .dt = x.dt};
	if (x.rg && x.node <= -2 && !t->recompute && !t->dry &&
	    t->params[-2 - x.node].edges < UINT16_MAX)
		t->params[-2 - x.node].edges++;
}

void oom_node_save(struct oom_tape *t, int32_t node, struct oom_val x)
{
	if (!t->grad)
		return;
	/* non-reentrant checkpoint, first forward: only counted */
	if (t->packing) {
		t->packs++;
		return;
	}
	if (t->dry && node >= 0)
		t->nodes[node].n_packed++;
	if (t->stopped)
		return;
	if (node >= 0) {
		struct oom_node *n = &t->nodes[node];

		n->saved[n->n_saved++] = x.sto;
		oom_ref(t, x.sto);
	}
	/* torch.utils.checkpoint, early_stop: recomputation ends with the last tensor that is
	 * needed */
	if (t->recompute && ++t->packs == t->pack_limit)
		t->stopped = true;
}

struct oom_val oom_node_out(struct oom_tape *t, int32_t node, uint8_t slot, struct oom_val x)
{
	x.rg = t->grad;
	x.slot = slot;
	x.node = node;
	if (node >= 0) {
		struct oom_node *n = &t->nodes[node];

		if (!slot) {
			n->mono = x.mono;
			n->width = x.width;
			n->dt = x.dt;
		}
		if (n->n_out <= slot)
			n->n_out = (uint8_t)(slot + 1);
	}
	return x;
}

/* ---- autocast ---- */

void oom_amp_enter(struct oom_tape *t)
{
	if (t->amp)
		t->amp_region = ++t->amp_seq;
}

void oom_amp_leave(struct oom_tape *t)
{
	if (!t->amp)
		return;
	for (size_t i = 0; i < t->n_params; i++) {
		struct oom_param *p = &t->params[i];

		if (p->amp >= 0 && p->amp_region == t->amp_region) {
			oom_unref(t, p->amp);
			p->amp = -1;
		}
	}
	if (t->leaf.region == t->amp_region && t->leaf.region) {
		oom_drop(t, t->leaf.copy);
		oom_drop(t, t->leaf.x);         /* held with its copy */
		t->leaf.copy = oom_none();
		t->leaf.region = 0;
	}
	t->amp_region = 0;
}

static bool is_leaf_input(const struct oom_tape *t, struct oom_val x)
{
	const struct oom_val l = t->leaf.x;

	return !oom_is_none(l) && x.sto == l.sto && x.node == l.node && x.width == l.width &&
	       x.dt == OOM_F32;
}

/* cached_cast (aten/src/ATen/autocast_mode.cpp): any fp32 leaf that needs a gradient. */
static struct oom_val leaf_cast(struct oom_tape *t, struct oom_val x)
{
	struct oom_leaf *l = &t->leaf;

	if (l->region != t->amp_region) {
		l->copy = oom_op_cast(t, oom_keep(x), (enum oom_dtype)t->amp_dt);
		l->region = t->amp_region;
		oom_ref(t, l->x.sto);
		if (l->copy.sto >= 0)
			t->rows[l->copy.sto].cat = OOM_CAT_AMP;
	}
	oom_done(t, x);
	return oom_share(t, l->copy);
}

struct oom_val oom_amp_cast(struct oom_tape *t, struct oom_val x)
{
	struct oom_param *p;

	if (!t->amp || x.dt == t->amp_dt || !oom_dtype_is_float((enum oom_dtype)x.dt))
		return x;
	if (is_leaf_input(t, x))
		return leaf_cast(t, x);
	/* not a trainable fp32 leaf: cast anew at every use */
	if (x.node > -2 || !t->params[-2 - x.node].trainable || x.dt != OOM_F32) {
		const bool leaf = x.node <= -2;
		struct oom_val y = oom_op_cast(t, x, (enum oom_dtype)t->amp_dt);

		if (leaf && y.sto >= 0)
			t->rows[y.sto].cat = OOM_CAT_AMP;
		return y;
	}
	p = &t->params[-2 - x.node];
	if ((p->amp < 0 && !t->dry) || p->amp_region != t->amp_region) {
		struct oom_val y = oom_op_cast(t, x, (enum oom_dtype)t->amp_dt);

		if (y.sto < 0 && !t->dry)
			return y;
		if (y.sto >= 0) {
			t->rows[y.sto].cat = OOM_CAT_AMP;
			t->rows[y.sto].name = "weight copy";
		}
		/* a dry run has no storage, yet it must cast a weight used twice once, as the
		 * real one does */
		p = &t->params[-2 - x.node];
		p->amp = y.sto;
		p->amp_node = y.node;
		p->amp_region = t->amp_region;
	}
	if (p->amp >= 0)
		oom_ref(t, p->amp);
	x.sto = p->amp;
	x.node = p->amp_node;
	x.dt = t->amp_dt;
	x.slot = 0;
	return x;
}

bool oom_tape_ckpt(struct oom_tape *t, const struct oom_ckpt *c)
{
	if (!grow(t, (void **)&t->ckpts, &t->cap_ckpts, t->n_ckpts + 1, sizeof(*t->ckpts)))
		return false;
	t->ckpts[t->n_ckpts++] = *c;
	return true;
}

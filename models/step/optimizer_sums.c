/* Slots in bytes, and an optimizer's sums over a model's parameters.
 *
 * Unit: bytes, one tensor at a time; on the card a state is whole allocator blocks of 512 bytes. */
#include "step/optimizers.h"
#include "tape/round.h"

#include <stdlib.h>
#include <string.h>

bool oom_hidden_matrix(const struct oom_param *p)
{
	return p->rows && p->flags & OOM_P_LINEAR && !(p->flags & OOM_P_HEAD);
}

static uint64_t shorter(const struct oom_param *p)
{
	return p->rows < p->cols ? p->rows : p->cols;
}

static bool projected(const struct oom_param *p, uint32_t rank)
{
	return oom_hidden_matrix(p) && shorter(p) > rank;
}

static bool belongs(const struct oom_slot *s, const struct oom_param *p)
{
	const bool small = p->elems < OOM_SMALL_TENSOR, embedding = p->flags & OOM_P_EMBEDDING;

	switch ((enum oom_slot_of)s->of) {
	case OOM_OF_ALL: return true;
	case OOM_OF_MATRICES: return p->rows;
	case OOM_OF_VECTORS: return !p->rows;
	case OOM_OF_LARGE: return !small;
	case OOM_OF_SMALL: return small;
	case OOM_OF_LARGE_BUT_EMBEDDINGS: return !small && !embedding;
	case OOM_OF_SMALL_AND_EMBEDDINGS: return small || embedding;
	case OOM_OF_BLOCKS: return !small && p->elems % s->k == 0;
	case OOM_OF_NOT_BLOCKS: return small || p->elems % s->k;
	case OOM_OF_HIDDEN: return oom_hidden_matrix(p);
	case OOM_OF_NOT_HIDDEN: return !oom_hidden_matrix(p);
	case OOM_OF_PROJECTED: return projected(p, s->k);
	case OOM_OF_NOT_PROJECTED: return !projected(p, s->k);
	}
	return false;
}

static uint64_t square(uint64_t side, uint64_t most)
{
	const uint64_t n = side < most ? side : most;

	return n * n;
}

static uint64_t elements(const struct oom_slot *s, const struct oom_param *p)
{
	const uint64_t rows = p->rows, cols = p->cols;

	switch ((enum oom_extent)s->extent) {
	case OOM_PER_ELEMENT: return p->elems;
	case OOM_PER_ROW: return rows ? p->elems / cols : 1;
	case OOM_PER_COLUMN: return rows ? p->elems / (p->mid ? p->mid : rows) : 0;
	case OOM_PER_BLOCK: return (p->elems + s->k - 1) / s->k;
	case OOM_PER_TENSOR: return 1;
	case OOM_TABLE_OF_16: return 16;
	case OOM_TABLE_OF_256: return 256;
	case OOM_LONG_BY_RANK: return (rows < cols ? cols : rows) * s->k;
	case OOM_SHORT_BY_RANK: return shorter(p) * s->k;
	case OOM_ROWS_SQUARED: return square(rows, s->k);
	case OOM_COLUMNS_SQUARED: return square(cols, s->k);
	case OOM_ROWS_SQUARED_UP_TO: return rows <= s->k ? rows * rows : 0;
	case OOM_COLUMNS_SQUARED_UP_TO: return cols <= s->k ? cols * cols : 0;
	case OOM_ONCE: return s->k;
	}
	return 0;
}

uint64_t oom_slot_bytes(const struct oom_slot *s, const struct oom_param *p, bool master,
			uint64_t *paged)
{
	const uint64_t half = s->half_bytes ? s->half_bytes :
			      master	    ? 8 :
					      2 * oom_dtype_bytes((enum oom_dtype)p->dt);
	const uint64_t bytes = belongs(s, p) ? (elements(s, p) * half + 1) / 2 : 0;
	const bool away = s->paged && p->elems >= OOM_PAGED_FROM;

	if (paged)
		*paged = away ? bytes : 0;
	return away ? 0 : bytes;
}

uint64_t oom_slots_make(const struct oom_optimizer *o, const struct oom_param *p, bool master,
			struct oom_sink *sink)
{
	uint64_t sum = 0;
	bool once = false;

	for (uint8_t k = 0; k < o->n_slots; k++) {
		const bool shared = o->slots[k].extent == OOM_ONCE;
		const uint64_t bytes = shared && sink->once ?
					       0 :
					       oom_slot_bytes(&o->slots[k], p, master, NULL);

		if (bytes)
			oom_sink_take(sink, bytes);
		once |= shared && bytes;
		sum += bytes;
	}
	sink->once |= once;
	return sum;
}

/* torch.optim skips parameters whose .grad is None. */
static bool stepped(const struct oom_param *p)
{
	return p->trainable && p->grad >= 0;
}

static bool in_place(const struct oom_param *p)
{
	return stepped(p) && !p->first;
}

/* Norms without a bias (RMS norms) are registered after a layer's other modules, whenever they run
 * (modeling_llama.py): they are stepped when the layer's other tensors have been. */
static bool late(const struct oom_stepped *s, size_t i)
{
	const struct oom_param *p = s->p;

	return p[i].flags & OOM_P_NORM && p[i].unit && i && !(p[i - 1].flags & OOM_P_NORM) &&
	       (i + 1 == s->n || !(p[i + 1].flags & OOM_P_NORM));
}

/* The first parameter of this unit from i on that is late or is not; s->n when there is none. */
static size_t within(const struct oom_stepped *s, size_t i, uint32_t unit, bool is_late)
{
	for (; i < s->n && s->p[i].unit == unit; i++)
		if (in_place(&s->p[i]) && late(s, i) == is_late)
			return i;
	return s->n;
}

static size_t next_in_place(const struct oom_stepped *s, size_t after)
{
	size_t i = after == SIZE_MAX ? 0 : after + 1, from = after, found;

	if (after != SIZE_MAX && s->p[after].unit) {    /* the rest of its layer */
		const uint32_t unit = s->p[after].unit;

		found = within(s, i, unit, late(s, after));
		while (from && s->p[from - 1].unit == unit)
			from--;
		if (found == s->n && !late(s, after))
			found = within(s, from, unit, true);
		if (found < s->n)
			return found;
		while (i < s->n && s->p[i].unit == unit)
			i++;
	}
	while (i < s->n && !s->p[i].unit && !in_place(&s->p[i]))
		i++;
	if (i == s->n || !s->p[i].unit)
		return i;
	found = within(s, i, s->p[i].unit, false);
	found = found < s->n ? found : within(s, i, s->p[i].unit, true);
	if (found < s->n)
		return found;
	for (from = i; i < s->n && s->p[i].unit == s->p[from].unit; i++)
		;
	return i < s->n ? next_in_place(s, i - 1) : i;
}

/* What the class makes before the rest, whenever it runs: the next of these, s->n when there is none. */
static size_t next_first(const struct oom_stepped *s, size_t after)
{
	const unsigned was = after == SIZE_MAX ? 0 : s->p[after].first;
	size_t found = s->n;

	for (size_t i = 0; i < s->n; i++)
		if (stepped(&s->p[i]) && (s->p[i].first > was || (was && s->p[i].first == was && i > after)) &&
		    (found == s->n || s->p[i].first < s->p[found].first))
			found = i;
	return found;
}

static size_t next_registered(const struct oom_stepped *s, size_t after)
{
	if (after == SIZE_MAX || s->p[after].first) {
		const size_t i = next_first(s, after);

		if (i < s->n)
			return i;
		after = SIZE_MAX;
	}
	return next_in_place(s, after);
}

/* Norms and biases do not decay, other vectors do (transformers trainer.py get_decay_parameter_names: nn.LayerNorm, and what is
 * called bias, layernorm, rmsnorm, norm or something_norm). */
static bool decays(const struct oom_param *p)
{
	return p->rows || !(p->flags & OOM_P_NORM || strstr(p->name, "bias") || strstr(p->name, "norm"));
}

size_t oom_next_stepped(const struct oom_stepped *s, size_t after)
{
	bool last = after != SIZE_MAX && !decays(&s->p[after]);
	size_t i = next_registered(s, after);

	if (!s->groups)
		return i;
	for (int group = 0; group < 2; group++) {
		while (i < s->n && decays(&s->p[i]) == last)
			i = next_registered(s, i);
		if (i < s->n || last)
			break;
		last = true;
		i = next_registered(s, SIZE_MAX);
	}
	return i;
}

/* ---- counting ---- */

int32_t oom_sink_take(struct oom_sink *s, uint64_t bytes)
{
	if (s->n == s->cap) {
		const size_t cap = s->cap ? 2 * s->cap : 256;
		struct oom_taken *q = realloc(s->taken, cap * sizeof(*q));

		s->failed |= !q;
		if (!q)
			return -1;
		s->taken = q;
		s->cap = cap;
	}
	s->taken[s->n] = (struct oom_taken){oom_block(bytes), s->put ? s->put(s->ctx, bytes) : -1};
	s->now += oom_block(bytes);
	s->peak = s->now > s->peak ? s->now : s->peak;
	return (int32_t)s->n++;
}

void oom_sink_give(struct oom_sink *s, int32_t handle)
{
	if (handle < 0)
		return;
	s->now -= s->taken[handle].bytes;
	if (s->drop)
		s->drop(s->ctx, s->taken[handle].block);
}

void oom_sink_release(struct oom_sink *s)
{
	free(s->taken);
	s->taken = NULL;
	s->n = s->cap = 0;
}

static void add_slots(const struct oom_optimizer *o, const struct oom_param *p, bool master,
		      struct oom_state_sums *out)
{
	bool once = false;

	for (uint8_t k = 0; k < o->n_slots; k++) {
		const bool shared = o->slots[k].extent == OOM_ONCE;
		const uint64_t n = !shared ? p->count : !out->shared;
		uint64_t away;
		const uint64_t bytes = oom_slot_bytes(&o->slots[k], p, master, &away);

		out->bytes += bytes * n;
		out->rounded += oom_block(bytes) * n;
		out->small += p->elems < OOM_SMALL_TENSOR ? oom_block(bytes) * n : 0;
		out->paged += away * n;
		out->again += shared ? oom_block(bytes) * (p->count - n) : 0;
		once |= shared && bytes;
	}
	out->shared |= once;
}

enum oom_status oom_optimizer_sums(const struct oom_optimizer *o, struct oom_stepped of, struct oom_state_sums *out)
{
	const struct oom_param *p = of.p;
	const size_t n = of.n;
	struct oom_sink sink = {0};
	uint64_t made;

	*out = (struct oom_state_sums){0};
	for (size_t i = 0; i < n; i++)
		if (stepped(&p[i]))
			add_slots(o, &p[i], of.master, out);
	made = out->rounded;
	/* those that an optimizer makes when it is made itself are there for what never gets a gradient, too */
	for (size_t i = 0; o->early && i < n; i++)
		if (p[i].trainable && !stepped(&p[i]))
			add_slots(o, &p[i], of.master, out);
	for (int step = 0; o->update && step < 2; step++) {
		const uint64_t held = step ? 0 : made;

		of.first = !step;
		sink.n = 0;
		sink.now = sink.peak = 0;
		sink.once = false;
		o->update(o, &of, &sink);
		out->temps[step] = sink.peak > held ? sink.peak - held : 0;
	}
	oom_sink_release(&sink);
	return sink.failed ? OOM_ERR_MEMORY : OOM_OK;
}

/* The associative scan of PyTorch as its operators run one after the other
 * (generic_associative_scan of torch/_higher_order_ops/associative_scan.py), over the pairs (a, b)
 * of Mamba's recurrence h' = a h + b:
 *
 *	combine((a_l, b_l), (a_r, b_r)) = (a_l * a_r, a_r * b_l + b_r)
 *
 * It halves the sequence until one element is left, then fills in the even places on the way back.
 * Every level makes new tensors; its slices are views, so what saves them keeps the level whole.
 * Only b's scan is used: the products of a on the way back get no gradient, and their part of the
 * graph dies with the caller's name for them. */
#include "mixers.h"

enum { MAX_LEVELS = 28 };                       /* seq-len ends at 1e8 < 2^27 */

/* What a call of _scan is given, or returns. */
struct elems {
	uint64_t n;
	struct oom_val a, b;
};

struct scan {
	struct oom_tape *t;
	uint64_t width;                         /* elements of one token and sequence */
	struct oom_frame *graph;                /* what the dead part of the graph keeps */
};

static struct oom_dim tokens(const struct scan *s, uint64_t n)
{
	return (struct oom_dim){n * s->width, "tokens * d_inner * d_state"};
}

/* x without its history: what follows is on no path to the loss. */
static struct oom_val dead(struct oom_val x)
{
	x.rg = false;
	x.node = -1;
	return x;
}

/* aten.slice: a view whose gradient is laid into zeros of the whole. */
static struct oom_val part(const struct scan *s, struct oom_val x, uint64_t n)
{
	return oom_op_slice(s->t, oom_keep(x), s->t->m_b, tokens(s, n));
}

/* a_r * b_l + b_r */
static struct oom_val combine_b(struct oom_tape *t, struct oom_val ar, struct oom_val bl,
				struct oom_val br)
{
	return oom_op_add(t, oom_op_mul(t, ar, bl), br);
}

/* Neighbours combined.  Of a single element nothing but a's scan uses the product. */
static struct elems halve(const struct scan *s, const struct elems *e)
{
	struct oom_tape *t = s->t;
	struct elems r = {.n = e->n / 2};
	const struct oom_val a = r.n > 1 ? e->a : dead(e->a);
	struct oom_val al = part(s, a, r.n), bl = part(s, e->b, r.n), ar = part(s, e->a, r.n),
		       br = part(s, e->b, r.n);

	r.a = oom_op_mul(t, al, oom_keep(r.n > 1 ? ar : dead(ar)));
	r.b = combine_b(t, ar, bl, br);
	return r;
}

/* The even places: the first element, then every result of the level below with its right
 * neighbour. */
static struct elems evens(const struct scan *s, const struct elems *e, const struct elems *odd)
{
	const uint64_t n = (e->n - 1) / 2;
	struct elems r = {.n = n + 1};
	struct oom_tape *t = s->t;
	struct oom_val bl, ar, br, a, b;

	if (!n) {                               /* nothing to combine, nothing joined */
		r.a = oom_share(t, dead(e->a));
		r.b = part(s, e->b, 1);
		return r;
	}
	bl = e->n % 2 ? oom_share(t, odd->b) : part(s, odd->b, n);
	ar = part(s, e->a, n);
	br = part(s, e->b, n);
	a = oom_op_mul(t, oom_keep(part(s, dead(odd->a), n)), oom_keep(dead(ar)));
	oom_drop(t, odd->a);
	if (t->grad && !t->packing)             /* saved for the gradient of a's product */
		oom_name(s->graph, oom_keep(odd->a));
	b = combine_b(t, ar, bl, br);
	r.a = oom_op_cat_into(t, oom_keep(dead(e->a)), oom_keep(a), t->m_b, tokens(s, n + 1));
	r.b = oom_op_cat_into(t, part(s, e->b, 1), oom_keep(b), t->m_b, tokens(s, n + 1));
	oom_drop(t, a);
	oom_drop(t, b);
	return r;
}

/* _interleave: stack and flatten; the shorter one is padded, the result cut. */
static struct oom_val interleave(const struct scan *s, struct oom_val even, struct oom_val odd,
				 uint64_t n)
{
	const uint64_t half = (n + 1) / 2;
	struct oom_tape *t = s->t;
	const bool rg = t->grad && (even.rg || odd.rg);
	int32_t node = -1;
	struct oom_val y;

	odd = n % 2 ? oom_op_pad(t, oom_keep(odd), t->m_b, tokens(s, half)) : oom_share(t, odd);
	if (rg) {
		node = oom_node(t, OOM_NODE_STACK, "stack");
		oom_node_edge(t, node, even);
		oom_node_edge(t, node, odd);
	}
	y = oom_new(t, "stack", t->m_b, tokens(s, 2 * half), (enum oom_dtype)even.dt);
	if (rg)
		y = oom_node_out(t, node, 0, y);
	if (n % 2)
		y = oom_op_slice(t, y, t->m_b, tokens(s, n));
	oom_drop(t, odd);
	return y;
}

static void drop(struct oom_tape *t, const struct elems *e)
{
	oom_drop(t, e->a);
	oom_drop(t, e->b);
}

/* _scan with its recursion unrolled: each call's locals live until it returns. */
static struct elems run(const struct scan *s, const struct elems *first)
{
	struct elems level[MAX_LEVELS], r, even, out;
	struct oom_tape *t = s->t;
	int k = 0;

	level[0] = *first;
	while (level[k].n > 1 && k + 1 < MAX_LEVELS) {
		level[k + 1] = halve(s, &level[k]);
		k++;
	}
	r = (struct elems){level[k].n, oom_share(t, dead(level[k].a)), oom_share(t, level[k].b)};
	while (k-- > 0) {
		even = evens(s, &level[k], &r);
		out.n = level[k].n;
		out.a = interleave(s, dead(even.a), dead(r.a), out.n);
		out.b = interleave(s, even.b, r.b, out.n);
		drop(t, &even);
		drop(t, &r);
		drop(t, &level[k + 1]);
		r = out;
	}
	return r;
}

/* movedim and its way back: the same elements, counted per token or per sequence. */
static struct oom_val moved(struct oom_tape *t, struct oom_val x, uint16_t mono,
			    struct oom_dim width)
{
	const bool rg = t->grad && x.rg;
	int32_t node = -1;

	if (rg) {
		node = oom_node(t, OOM_NODE_CAT, "movedim");
		oom_node_edge(t, node, x);
	}
	x = oom_op_view(t, x, mono, width);
	return rg ? oom_node_out(t, node, 0, x) : x;
}

struct oom_val oom_associative_scan(struct oom_tape *t, struct oom_val a, struct oom_val b,
				    struct oom_frame *held)
{
	const uint64_t n = oom_mono_now(t, t->m_s), width = a.width;
	const struct oom_dim all = {width, a.text};
	struct scan s = {.t = t, .width = width, .graph = held};
	struct elems e, all_h;

	/* every length has levels of its own: another one is recorded anew */
	if (n)
		oom_cond_above(t, t->m_s, n - 1);
	oom_cond_above(t, t->m_s, n);
	if (width && n > (UINT64_C(1) << 52) / width) {
		if (!t->status)
			oom_tape_impossible(t, OOM_ERR_INVALID,
				      "a scan of %llu tokens with %llu states each is out of range",
				      (unsigned long long)n, (unsigned long long)width);
		return oom_share(t, b);
	}
	e.n = n;
	e.a = moved(t, oom_keep(a), t->m_b, tokens(&s, n));
	e.b = moved(t, oom_keep(b), t->m_b, tokens(&s, n));
	all_h = run(&s, &e);
	drop(t, &e);
	/* `_, all_h =`: both names live until the mixer returns */
	oom_name(held, all_h.a);
	return moved(t, oom_name(held, all_h.b), t->m_bs, all);
}

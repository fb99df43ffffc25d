/* Opcodes: Python's Lib/pickletools.py.  Anything outside the list below is refused by its
 * offset. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pickle.h"

#define MARK UINT32_MAX
/* What a hostile file may make us hold: values, and places in containers and on the stack. */
enum { MAX_NODES = 1 << 24, MAX_PLACES = 1 << 26 };

struct ids {
	uint32_t *items;
	size_t n, cap;
};

struct reader {
	const uint8_t *at, *end;
	struct oom_pickle p;
	struct ids stack, memo;
	size_t places;                  /* in containers */
};

static enum oom_status push(struct ids *s, uint32_t id)
{
	if (s->n == s->cap) {
		const size_t cap = s->cap ? 2 * s->cap : 64;
		uint32_t *items;

		if (cap > MAX_PLACES)
			return OOM_ERR_LIMIT;
		items = realloc(s->items, cap * sizeof(*items));
		if (!items)
			return OOM_ERR_MEMORY;
		s->items = items;
		s->cap = cap;
	}
	s->items[s->n++] = id;
	return OOM_OK;
}

static enum oom_status put(struct reader *r, struct oom_pickle_node node)
{
	struct oom_pickle *p = &r->p;

	if (p->n == p->cap) {
		const size_t cap = p->cap ? 2 * p->cap : 256;
		struct oom_pickle_node *nodes;

		if (cap > MAX_NODES)
			return OOM_ERR_LIMIT;
		nodes = realloc(p->nodes, cap * sizeof(*nodes));
		if (!nodes)
			return OOM_ERR_MEMORY;
		p->nodes = nodes;
		p->cap = cap;
	}
	/* stored first: from here on the node owns its items, whatever becomes of the stack */
	p->nodes[p->n] = node;
	return push(&r->stack, (uint32_t)p->n++);
}

static bool little(struct reader *r, unsigned n, uint64_t *v)
{
	if ((size_t)(r->end - r->at) < n)
		return false;
	*v = 0;
	for (unsigned i = 0; i < n; i++)
		*v |= (uint64_t)*r->at++ << 8 * i;
	return true;
}

static enum oom_status integer(struct reader *r, unsigned n, bool is_signed)
{
	uint64_t v;

	if (n > 8 || !little(r, n, &v))
		return OOM_ERR_PARSE;
	if (is_signed && n && n < 8 && v >> (8 * n - 1))
		v |= ~UINT64_C(0) << 8 * n;
	return put(r, (struct oom_pickle_node){.kind = OOM_PICKLE_INT, .u.integer = (int64_t)v});
}

static enum oom_status text(struct reader *r, unsigned width)
{
	struct oom_pickle_node node = {.kind = OOM_PICKLE_TEXT};
	uint64_t n;

	if (!little(r, width, &n) || n > (uint64_t)(r->end - r->at) || n >= MARK)
		return OOM_ERR_PARSE;
	node.n = (uint32_t)n;
	node.u.text = (const char *)r->at;
	r->at += n;
	return put(r, node);
}

static enum oom_status real(struct reader *r)
{
	struct oom_pickle_node node = {.kind = OOM_PICKLE_REAL};
	uint64_t bits = 0;

	if (r->end - r->at < 8)
		return OOM_ERR_PARSE;
	for (int i = 0; i < 8; i++)
		bits = bits << 8 | *r->at++;
	memcpy(&node.u.real, &bits, 8);
	return put(r, node);
}

/* Moves the stack above `from` into the container below it, which lies at `from` - 1 - gap (gap:
 * the mark). */
static enum oom_status fill(struct reader *r, size_t from, size_t gap, enum oom_pickle_kind kind)
{
	const size_t n = r->stack.n - from;
	struct oom_pickle_node *c;

	if (from < gap + 1 || r->stack.items[from - gap - 1] == MARK)
		return OOM_ERR_PARSE;
	c = &r->p.nodes[r->stack.items[from - gap - 1]];
	if (c->kind != kind || (kind == OOM_PICKLE_DICT && n % 2) || n >= MARK - c->n)
		return OOM_ERR_PARSE;
	for (size_t i = from; i < r->stack.n; i++)
		if (r->stack.items[i] == MARK)
			return OOM_ERR_PARSE;
	if (n > c->cap - c->n) {
		const size_t cap = c->n + n > 2 * (size_t)c->cap ? c->n + n : 2 * (size_t)c->cap;
		uint32_t *items;

		r->places += cap - c->cap;
		if (r->places > MAX_PLACES)
			return OOM_ERR_LIMIT;
		items = realloc(c->u.items, cap * sizeof(*items));
		if (!items)
			return OOM_ERR_MEMORY;
		c->u.items = items;
		c->cap = (uint32_t)cap;
	}
	if (n)
		memcpy(c->u.items + c->n, r->stack.items + from, n * sizeof(*c->u.items));
	c->n += (uint32_t)n;
	r->stack.n = from - gap;
	return OOM_OK;
}

/* The items above `from` become one tuple; gap is 1 when a mark lies under them. */
static enum oom_status tuple(struct reader *r, size_t from, size_t gap)
{
	const size_t n = r->stack.n - from;
	struct oom_pickle_node node = {.kind = OOM_PICKLE_LIST,
				       .n = (uint32_t)n,
				       .cap = (uint32_t)n};
	enum oom_status st;
	size_t made;

	for (size_t i = from; i < r->stack.n; i++)
		if (r->stack.items[i] == MARK)
			return OOM_ERR_PARSE;
	r->places += n;
	if (r->places > MAX_PLACES)
		return OOM_ERR_LIMIT;
	if (n) {
		node.u.items = malloc(n * sizeof(*node.u.items));
		if (!node.u.items)
			return OOM_ERR_MEMORY;
		memcpy(node.u.items, r->stack.items + from, n * sizeof(*node.u.items));
	}
	r->stack.n = from - gap;
	made = r->p.n;
	st = put(r, node);
	/* only what no node took over: a stored node is freed with the others */
	if (r->p.n == made)
		free(node.u.items);
	return st;
}

static bool marked(const struct reader *r, size_t *from)
{
	for (*from = r->stack.n; *from; --*from)
		if (r->stack.items[*from - 1] == MARK)
			return true;
	return false;
}

static enum oom_status memo_put(struct reader *r, uint64_t i)
{
	/* picklers number the memo from 0 without holes */
	if (!r->stack.n || r->stack.items[r->stack.n - 1] == MARK || i > r->memo.n)
		return OOM_ERR_PARSE;
	if (i < r->memo.n) {
		r->memo.items[i] = r->stack.items[r->stack.n - 1];
		return OOM_OK;
	}
	return push(&r->memo, r->stack.items[r->stack.n - 1]);
}

static enum oom_status memo_get(struct reader *r, unsigned width)
{
	uint64_t i;

	if (!little(r, width, &i) || i >= r->memo.n)
		return OOM_ERR_PARSE;
	return push(&r->stack, r->memo.items[i]);
}

static enum oom_status step(struct reader *r, uint8_t op)
{
	const size_t n = r->stack.n;
	uint64_t v;
	size_t from;

	switch (op) {
	case 0x80: return little(r, 1, &v) && v <= 5 ? OOM_OK : OOM_ERR_PARSE;
	case 0x95: return little(r, 8, &v) ? OOM_OK : OOM_ERR_PARSE;
	case '(': return push(&r->stack, MARK);
	case '}': return put(r, (struct oom_pickle_node){.kind = OOM_PICKLE_DICT});
	case ']': case ')': return put(r, (struct oom_pickle_node){.kind = OOM_PICKLE_LIST});
	case 'N': return put(r, (struct oom_pickle_node){.kind = OOM_PICKLE_NONE});
	case 0x88:
	case 0x89:
		return put(r, (struct oom_pickle_node){.kind = OOM_PICKLE_INT,
						       .u.integer = op == 0x88});
	case 'K': return integer(r, 1, false);
	case 'M': return integer(r, 2, false);
	case 'J': return integer(r, 4, true);
	case 0x8a: return little(r, 1, &v) ? integer(r, (unsigned)v, true) : OOM_ERR_PARSE;
	case 'G': return real(r);
	case 0x8c: case 'C': return text(r, 1);
	case 'X': case 'B': return text(r, 4);
	case 0x8d: case 0x8e: return text(r, 8);
	case 0x94: return memo_put(r, r->memo.n);
	case 'q': return little(r, 1, &v) ? memo_put(r, v) : OOM_ERR_PARSE;
	case 'r': return little(r, 4, &v) ? memo_put(r, v) : OOM_ERR_PARSE;
	case 'h': return memo_get(r, 1);
	case 'j': return memo_get(r, 4);
	case 'a': return n >= 2 ? fill(r, n - 1, 0, OOM_PICKLE_LIST) : OOM_ERR_PARSE;
	case 's': return n >= 3 ? fill(r, n - 2, 0, OOM_PICKLE_DICT) : OOM_ERR_PARSE;
	case 'e': return marked(r, &from) ? fill(r, from, 1, OOM_PICKLE_LIST) : OOM_ERR_PARSE;
	case 'u': return marked(r, &from) ? fill(r, from, 1, OOM_PICKLE_DICT) : OOM_ERR_PARSE;
	case 't': return marked(r, &from) ? tuple(r, from, 1) : OOM_ERR_PARSE;
	case 0x85:
	case 0x86:
	case 0x87: return n >= op - 0x84U ? tuple(r, n - (op - 0x84U), 0) : OOM_ERR_PARSE;
	default: return OOM_ERR_INVALID;
	}
}

void oom_pickle_release(struct oom_pickle *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->nodes[i].kind == OOM_PICKLE_LIST || p->nodes[i].kind == OOM_PICKLE_DICT)
			free(p->nodes[i].u.items);
	free(p->nodes);
	memset(p, 0, sizeof(*p));
}

enum oom_status oom_pickle_parse(struct oom_pickle *out, const uint8_t *data, size_t size,
				 struct oom_error *err)
{
	struct reader r = {.at = data, .end = data + size};
	enum oom_status st = OOM_ERR_PARSE;
	size_t at = 0;
	uint8_t op = 0;

	while (r.at < r.end) {
		at = (size_t)(r.at - data);
		op = *r.at++;
		st = OOM_OK;
		if (op == '.')
			break;
		st = step(&r, op);
		if (st)
			break;
	}
	if (!st && (op != '.' || r.stack.n != 1 || r.stack.items[0] == MARK))
		st = OOM_ERR_PARSE;
	if (!st)
		r.p.root = r.stack.items[0];
	free(r.stack.items);
	free(r.memo.items);
	if (st) {
		oom_pickle_release(&r.p);
		if (st == OOM_ERR_LIMIT || st == OOM_ERR_MEMORY)
			return oom_error_set(err, st, "%s, at byte %zu of the pickle",
					     st == OOM_ERR_LIMIT ? "too many values" :
								   "out of host memory",
					     at);
		return st == OOM_ERR_INVALID ?
			       oom_error_set(err, st,
					     "pickle opcode 0x%02x at byte %zu is not plain data "
					     "(numbers, text, lists, dicts): refused",
					     op, at) :
			       oom_error_set(err, st, "not a readable pickle, at byte %zu", at);
	}
	*out = r.p;
	return OOM_OK;
}

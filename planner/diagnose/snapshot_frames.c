/* What the frames of an allocation say it was for. */
#include <stdio.h>
#include <string.h>

#include "snapshot_parts.h"

/* Real dicts have a dozen keys, real names a few hundred letters, real stacks a hundred frames:
 * what is longer was made to keep us busy. */
enum { MAX_KEYS = 64, MAX_TEXT = 256, MAX_FRAMES = 512, NONE = UINT8_MAX };

static const struct {
	const char *name, *column;
} words[OOM_HELD_KINDS] = {
	{"from before the recording", "before"}, {"parameters", "params"}, {"inputs", "inputs"}, {"gradients", "grads"},
	{"optimizer state", "opt"}, {"forward: saved and temporary", "forward"}, {"loss and logits", "loss"},
	{"recomputed", "recompute"}, {"backward", "backward"}, {"communication and gathered", "comm"}, {"other", "other"},
	{"no Python frames (backward?)", "no_frames"}};

const char *oom_held_str(enum oom_held h)
{
	return words[h].name;
}

const char *oom_held_column(enum oom_held h)
{
	return words[h].column;
}

/* ---- nodes ---- */

bool oom_node_is(const node *n, const char *word)
{
	return n && n->kind == OOM_PICKLE_TEXT && n->n == strlen(word) &&
	       !memcmp(n->u.text, word, n->n);
}

const node *oom_node_get(const struct oom_pickle *p, const node *dict, const char *key)
{
	if (!dict || dict->kind != OOM_PICKLE_DICT)
		return NULL;
	for (uint32_t i = 0; i + 1 < dict->n && i < 2 * MAX_KEYS; i += 2)
		if (oom_node_is(&p->nodes[dict->u.items[i]], key))
			return &p->nodes[dict->u.items[i + 1]];
	return NULL;
}

const node *oom_node_list(const struct oom_pickle *p, const node *dict, const char *key)
{
	const node *n = oom_node_get(p, dict, key);

	return n && n->kind == OOM_PICKLE_LIST ? n : NULL;
}

uint64_t oom_node_number(const struct oom_pickle *p, const node *dict, const char *key)
{
	const node *n = oom_node_get(p, dict, key);

	return n && n->kind == OOM_PICKLE_INT && n->u.integer > 0 ? (uint64_t)n->u.integer : 0;
}

static bool has(const node *n, const char *word)
{
	const uint32_t size = n->n < MAX_TEXT ? n->n : MAX_TEXT;
	const size_t w = strlen(word);

	for (size_t i = 0; i + w <= size; i++)
		if (n->u.text[i] == word[0] && !memcmp(n->u.text + i, word, w))
			return true;
	return false;
}

/* ---- rules ---- */

/* In the file's or the function's name; the first rule that any frame meets counts.  Names: the
 * sources of PyTorch, transformers, accelerate, bitsandbytes. */
static const struct {
	bool file, whole;
	const char *word;
	enum oom_held held;
} rules[] = {
	{true, false, "torch/optim/", OOM_HELD_OPT}, {true, false, "bitsandbytes/optim", OOM_HELD_OPT},
	{true, false, "apex/optimizers", OOM_HELD_OPT}, {true, false, "transformers/optimization.py", OOM_HELD_OPT},
	{false, true, "_init_group", OOM_HELD_OPT},
	{false, true, "recompute_fn", OOM_HELD_RECOMPUTE}, {false, true, "unpack_hook", OOM_HELD_RECOMPUTE},
	{false, false, "AccumulateGrad", OOM_HELD_GRADS},
	{false, false, "backward", OOM_HELD_BACKWARD}, {false, false, "Engine::evaluate_function", OOM_HELD_BACKWARD},
	{false, false, "cross_entropy", OOM_HELD_LOSS}, {true, false, "loss_utils.py", OOM_HELD_LOSS},
	{true, false, "distributed_c10d.py", OOM_HELD_COMM}, {true, false, "distributed/fsdp", OOM_HELD_COMM},
	{false, true, "forward", OOM_HELD_FORWARD}, {false, true, "_call_impl", OOM_HELD_FORWARD},
	{true, false, "utils/data/", OOM_HELD_INPUTS}, {false, true, "send_to_device", OOM_HELD_INPUTS},
	{false, true, "_prepare_inputs", OOM_HELD_INPUTS},
	{false, true, "from_pretrained", OOM_HELD_PARAMS}, {false, false, "load_state_dict", OOM_HELD_PARAMS},
	{false, true, "_apply", OOM_HELD_PARAMS}, {false, true, "reset_parameters", OOM_HELD_PARAMS},
	{false, true, "__init__", OOM_HELD_PARAMS}, {true, false, "accelerate/utils/modeling.py", OOM_HELD_PARAMS}};


/* The number of the first rule that a file's or a function's name meets. */
static uint8_t rule_of(const struct oom_pickle *p, struct oom_told *told, const node *text,
		       bool file)
{
	uint8_t *known;

	if (!text || text->kind != OOM_PICKLE_TEXT)
		return NONE;
	known = file ? &told[text - p->nodes].file_rule : &told[text - p->nodes].name_rule;
	if (*known > 0)
		return *known;
	*known = NONE;
	for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++)
		if (rules[r].file == file && (rules[r].whole ? oom_node_is(text, rules[r].word) :
							       has(text, rules[r].word))) {
			*known = (uint8_t)(r + 1);
			break;
		}
	return *known;
}

static bool ends_py(const node *file)
{
	return file && file->kind == OOM_PICKLE_TEXT && file->n > 3 &&
	       !memcmp(file->u.text + file->n - 3, ".py", 3);
}

const struct oom_told *oom_frames_tell(const struct oom_pickle *p, struct oom_told *told,
				       const node *frames)
{
	struct oom_told *t = &told[frames - p->nodes];
	uint32_t python = UINT32_MAX, own = UINT32_MAX;
	uint8_t best = NONE;
	bool inside = true;

	if (t->known)
		return t;
	t->known = true;
	for (uint32_t i = 0; i < frames->n && i < MAX_FRAMES; i++) {
		const node *f = &p->nodes[frames->u.items[i]],
			   *file = oom_node_get(p, f, "filename"),
			   *name = oom_node_get(p, f, "name");
		const uint8_t a = rule_of(p, told, file, true), b = rule_of(p, told, name, false);

		/* innermost first; what lies outside a closure (Lightning, L-BFGS: the step
		 * calls the passes) says nothing */
		inside &= !oom_node_is(name, "closure");
		if (inside && a < best)
			best = a;
		if (inside && b < best)
			best = b;
		t->zero_grad |= oom_node_is(name, "zero_grad");
		if (!ends_py(file))
			continue;
		if (python == UINT32_MAX)
			python = frames->u.items[i];
		/* what the compiler wrote is nobody's own: the frame that calls it is */
		if (own == UINT32_MAX && !has(file, "/torch/") && !has(file, "/torchinductor_"))
			own = frames->u.items[i];
	}
	t->held = best == NONE ? OOM_HELD_OTHER : (uint8_t)rules[best - 1].held;
	t->frame = own != UINT32_MAX	? own :
		   python != UINT32_MAX ? python :
		   frames->n		? frames->u.items[0] :
					  UINT32_MAX;
	return t;
}

void oom_frame_where(const struct oom_pickle *p, const node *frame, char *out, size_t size)
{
	const node *file = oom_node_get(p, frame, "filename"),
		   *name = oom_node_get(p, frame, "name");
	const char *f = "?", *g = "?";
	uint32_t nf = 1, ng = 1;

	if (file && file->kind == OOM_PICKLE_TEXT && file->n) {
		uint32_t slashes = 0, i = file->n;

		while (i && slashes < 2)
			slashes += file->u.text[--i] == '/';
		i += slashes == 2;
		f = file->u.text + i;
		nf = file->n - i;
	}
	if (name && name->kind == OOM_PICKLE_TEXT) {
		g = name->u.text;
		ng = name->n;
	}
	snprintf(out, size, "%.*s:%llu in %.*s", (int)(nf < 64 ? nf : 64), f,
		 (unsigned long long)oom_node_number(p, frame, "line"), (int)(ng < 40 ? ng : 40),
		 g);
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = '?';
}


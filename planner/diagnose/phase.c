/* Where in the run a crash happened.
 *
 * Five tiers, from what a text says to what it only suggests: messages that belong to one phase;
 * the frames of the traceback the message ends; words of the log around it (progress bars, script
 * names); and, where a bare message was pasted, a guess from its numbers, which is called one.
 *
 * A frame rule is a word and the phase it speaks for; a table is ordered by how much a word says.
 * An optimizer frame stands inside a training step, a recomputed forward inside a backward, a
 * forward inside an evaluation: the outer, rarer word wins over the common one. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

static const char *const names[OOM_CRASH_PHASES] = {
	"unknown", "forward", "backward", "optimizer", "train_step", "eval", "inference", "load", "to_device", "init", "compile",
	"data", "collective", "test", "save"};

const char *oom_crash_phase_str(enum oom_crash_phase p)
{
	return names[p];
}

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

const struct oom_phase_rule *oom_phase_meets(const struct oom_phase_rule *rule, const char *from,
					  const char *to)
{
	for (; rule->word; rule++)
		if (*rule->word == '~' ? oom_frame_of_verb(from, to, rule->word + 1, rule->phase) != NULL :
				     oom_text_find(from, to, rule->word) != NULL)
			return rule;
	return NULL;
}

bool oom_phase_by_word(struct oom_crash *c, const struct oom_phase_rule *rules, const char *from,
		    const char *to, double confidence)
{
	const struct oom_phase_rule *rule = oom_phase_meets(rules, from, to);
	char why[80];

	if (!rule)
		return false;
	if (rule->phase == OOM_CRASH_UNKNOWN)
		return oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
	/* the word may end with its line */
	if (*rule->word == '~') {
		const char *const name = oom_frame_of_verb(from, to, rule->word + 1, rule->phase);

		snprintf(why, sizeof(why), "the function \"%.*s\"", (int)strcspn(name, "\n (,"), name);
	} else {
		snprintf(why, sizeof(why), "\"%.*s\"", (int)strcspn(rule->word, "\n"), rule->word);
	}
	return oom_phase_settle(c, rule->phase, confidence, why);
}

/* ---- the traceback ---- */

/* A traceback with nothing but the program's own top level: the failing statement made or moved
 * a tensor itself. XLA hides its frames, and such a statement runs a whole program. */
static bool top_level(const struct oom_crash *c, const struct oom_span *s)
{
	size_t frames = 0;

	if (oom_runtime_is(c, OOM_RUNTIME_EXECUTABLE | OOM_RUNTIME_NO_TENSORS))
		return false;
	for (const char *p = s->from; (p = oom_text_find(p, s->to, "File \"")); p++) {
		if (!oom_text_find(p, oom_line_end(p, s->to), "in <module>"))
			return false;
		frames++;
	}
	return frames == 1 && oom_text_find(s->from, s->to, "Traceback (most recent call last)");
}

/* "out = net(x)": what is called is a name of the script's own and no class, so that its frames should stand below; a
 * constructor of a tensor is dotted ("torch.zeros(") or a class ("Variable("). */
static bool calls_a_name(const struct oom_span *s)
{
	const char *const frame = oom_text_last(s->from, s->to, "File \""), *p = frame ? oom_line_end(frame, s->to) : NULL,
			 *const stop = p && p < s->to ? oom_line_end(p + 1, s->to) : NULL;
	const char *const equals = stop ? oom_text_find(p, stop, " = ") : NULL, *name = equals ? equals + 3 : NULL;

	if (!name || *name < 'a' || *name > 'z')
		return false;
	for (p = name; p < stop && ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '_');)
		p++;
	return p < stop && *p == '(';
}

/* The function of the innermost frame, where frames are Python's own. */
static bool innermost_is(const struct oom_span *s, const char *name)
{
	const char *p = oom_text_last(s->from, s->to, "File \""), *stop = p ? oom_line_end(p, s->to) : NULL;

	p = p ? oom_text_find(p, stop, ", in ") : NULL;
	/* the line's end is one of the name's */
	if (stop && stop < s->to)
		stop++;
	return p && stop - p >= 5 + (ptrdiff_t)strlen(name) && !memcmp(p + 5, name, strlen(name));
}

/* Training keeps the outputs of all layers for the backward pass, and gradients besides: a model
 * inside its forward pass that holds less than half a GiB, on a card whose rest others hold, keeps
 * none.  A guess of that half GiB: the small image models people train on such cards hold more. */
static bool keeps_nothing(const struct oom_crash *c)
{
	const uint64_t held = c->bytes[OOM_CRASH_RESERVED_TOTAL], total = c->bytes[OOM_CRASH_TOTAL];

	return c->known[OOM_CRASH_RESERVED_TOTAL] && c->known[OOM_CRASH_TOTAL] && held &&
	       held < (uint64_t)512 << 20 && held < total / 4;
}

/* A forward pass inside it is training's, whatever the library of the model also does. */
bool oom_phase_in_training(const struct oom_span *s)
{
	const struct oom_phase_rule *const rule = oom_phase_meets(oom_phase_of_driver, s->from, s->to);

	return rule && (rule->phase == OOM_CRASH_TRAIN_STEP || rule->phase == OOM_CRASH_FORWARD) &&
	       oom_phase_meets(oom_phase_of_forward, s->from, s->to);
}

/* The line above the message is empty or ends a block: what stands there is not the line that failed. */
static bool stands_apart(const struct oom_span *s, const char *at)
{
	const char *const line = oom_line_begin(s->from, at), *const above = line > s->from ? oom_line_begin(s->from, line - 1) : line;

	return above < line && (line - above < 2 || !memcmp(above, "```", 3) || oom_text_find(above, line, " I ") || oom_text_find(above, line, " i get"));
}

/* A program that somebody shows, not the frames of one: its lines are what it does in turn. */
static bool is_script(const struct oom_crash *c, const struct oom_span *s, const char *at)
{
	return !c->traceback && !oom_text_find(s->from, s->to, "--> ") && (stands_apart(s, at) || oom_bar_above(s->from, at) || oom_text_find(s->from, s->to, "\nimport ") || oom_text_find(s->from, s->to, "\nfrom ") ||
				 !strncmp(s->from, "import ", 7) || !strncmp(s->from, "from ", 5));
}

static bool beside_steps(enum oom_crash_phase phase)
{
	return phase == OOM_CRASH_INIT || phase == OOM_CRASH_DATA || phase == OOM_CRASH_SAVE || phase == OOM_CRASH_EVAL ||
	       phase == OOM_CRASH_TO_DEVICE;
}

/* An optimizer that calls the step's closure has the backward pass below it. */
static void backward_below(struct oom_crash *c, const struct oom_span *s)
{
	static const char *const passes[] = {", in backward", "run_backward", ".backward("}, *const steps[] = {"ptimizer_step", "optimizer.step(", ", in step"};
	const char *pass = NULL, *step = NULL;

	for (size_t i = 0; c->phase == OOM_CRASH_OPTIMIZER && i < COUNT(passes); i++) {
		const char *const p = oom_text_last(s->from, s->to, passes[i]), *const q = oom_text_last(s->from, s->to, steps[i]);

		pass = p > pass ? p : pass;
		step = q > step ? q : step;
	}
	if (pass && step && pass > step)
		oom_phase_settle(c, OOM_CRASH_BACKWARD, 0.8, "a backward pass below the optimizer's step");
}

static bool by_frames(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	char buf[32 << 10];
	struct oom_span s;

	if (!oom_traceback(begin, at, end, &s) || is_script(c, &s, at))
		return false;
	oom_traceback_inside_closure(&s);
	s = oom_traceback_executed(&s, buf, sizeof(buf));
	if ((!oom_text_find(s.from, s.to, "torchinductor_") &&
	     oom_phase_by_word(c, oom_phase_of_compiling, s.from, s.to, 0.9)) ||
	    oom_phase_by_word(c, oom_phase_of_frame, s.from, s.to, 0.9)) {
		backward_below(c, &s);
		return true;
	}
	if (innermost_is(&s, "__init__") || innermost_is(&s, "init\n") || innermost_is(&s, "reset_parameters"))
		/* a program that only infers loads the model that it makes, and a server's module is made with room for its weights */
		return oom_phase_settle(c, oom_program_of(c)->activity == OOM_ACTIVITY_INFERS || oom_program_of(c)->activity == OOM_ACTIVITY_SERVES ? OOM_CRASH_LOAD : OOM_CRASH_INIT, 0.7,
					"the innermost frame makes a module");
	if (!oom_phase_meets(oom_phase_of_forward, s.from, s.to) && oom_phase_by_placing(c, &s))
		return true;
	if (keeps_nothing(c) && !oom_phase_script_trains(c, begin, end) && oom_phase_meets(oom_phase_of_forward, s.from, s.to) &&
	    !oom_phase_meets(oom_phase_of_driver, s.from, s.to))
		return oom_phase_settle(c, OOM_CRASH_INFERENCE, 0.55,
			      "a forward pass that holds too little to be training");
	if (!oom_phase_in_training(&s) && oom_phase_by_word(c, oom_phase_of_inferring, s.from, s.to, 0.7)) {
		struct oom_crash inner = *c;

		/* what such a program does before it infers */
		if (oom_phase_by_functions(&inner, s.from, s.to) && (inner.phase == OOM_CRASH_LOAD || inner.phase == OOM_CRASH_INIT))
			*c = inner;
		return true;
	}
	if (oom_phase_by_word(c, oom_phase_of_forward, s.from, s.to, 0.85)) {
		struct oom_crash outer = *c;

		/* an evaluation in the middle of a training */
		if (oom_phase_in_training(&s) && oom_phase_by_deeper(c, s.from, s.to))
			return true;

		/* named after what the forward pass was part of */
		if (!oom_phase_in_training(&s) && oom_phase_by_functions(&outer, s.from, s.to) &&
		    (outer.phase == OOM_CRASH_INFERENCE || outer.phase == OOM_CRASH_EVAL ||
		     outer.phase == OOM_CRASH_LOAD || outer.phase == OOM_CRASH_INIT))
			*c = outer;
		return true;
	}
	/* inside a training's loop, what stands deeper than the loop: a part of a step, or none of it */
	if (oom_phase_by_functions(c, s.from, s.to) && (beside_steps(c->phase) || c->phase == OOM_CRASH_FORWARD))
		return true;
	if (oom_phase_by_word(c, oom_phase_of_driver, s.from, s.to, 0.8) || oom_phase_by_functions(c, s.from, s.to))
		return true;
	if (top_level(c, &s) && calls_a_name(&s))
		return oom_phase_settle(c, OOM_CRASH_FORWARD, 0.5, "a call at top level whose own frames are missing: a model's, as a rule");
	/* what the host's allocator refuses was moved nowhere */
	return top_level(c, &s) && !oom_runtime_is(c, OOM_RUNTIME_HOST) &&
	       oom_phase_settle(c, OOM_CRASH_TO_DEVICE, 0.6, "a single frame at top level: the statement itself makes the tensor");
}

/* Frames of Python, or of IPython's and Rich's boxes: "File "x.py", line 1", "x.py in f(",
 * "x.py:1, in f". */
static bool has_frames(const char *begin, const char *end)
{
	/* the last: a path that a narrow page broke */
	if (oom_text_find(begin, end, "File \"") || oom_text_find(begin, end, ".py in ") ||
	    oom_text_find(begin, end, "\", line "))
		return true;
	for (const char *p = begin; (p = oom_text_find(p, end, ".py:")); p++) {
		const char *q = p + 4;

		while (q < end && *q >= '0' && *q <= '9')
			q++;
		q += q < end && *q == ',';
		if (q > p + 4 && end - q > 4 && !memcmp(q, " in ", 4))
			return true;
	}
	return false;
}

/* Kill lines end no traceback of their own: the frames before them are somebody else's. */
bool oom_phase_ends_traceback(const struct oom_crash *c)
{
	return oom_format_is(c, OOM_FORMAT_RAISED) || !oom_runtime_is(c, OOM_RUNTIME_HOST) ||
	       oom_format_is(c, OOM_FORMAT_ONE_ARRAY);
}

/* TensorFlow's node is on the line after the message, in double brackets; others that follow only
 * receive its result. */
static bool by_node(struct oom_crash *c, const char *from, const char *end)
{
	const char *node = oom_runtime_is(c, OOM_RUNTIME_GRAPH) ? oom_text_find(from, end, "[[") : NULL,
		   *stop = node ? oom_text_find(node, end, "]]") : NULL;

	/* a cluster compiled as one is of no part */
	return stop && !oom_text_find(node, stop, "xla_run") &&
	       oom_phase_by_word(c, oom_phase_of_line, node, stop + 2, 0.85);
}

/* Where several layers report one refusal, the function that asked stands on a line next to it. */
static bool by_requester(struct oom_crash *c, const char *begin, const char *line, const char *end)
{
	const char *const stop = end - line > 700 ? line + 700 : end;

	return oom_runtime_is(c, OOM_RUNTIME_LAYERED) &&
	       (oom_phase_by_word(c, oom_phase_of_requester, line, stop, 0.85) ||
		(line > begin && oom_phase_by_word(c, oom_phase_of_requester, oom_line_begin(begin, line - 1), line, 0.8)));
}

/* A forward pass is one of training unless the log, or who shows it, says what it is part of; a step whose frames do not go on,
 * and code without frames, may be any part that he names. */
static void around_frames(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	struct oom_crash said = *c;

	if (c->phase == OOM_CRASH_FORWARD && (oom_phase_by_workers(&said, at, end) || oom_phase_by_nearest(&said, begin, at, end)) &&
	    (said.phase == OOM_CRASH_INFERENCE || said.phase == OOM_CRASH_EVAL))
		oom_phase_settle(c, said.phase, said.phase_confidence, said.phase_evidence);
	/* its frames say no word of a training, and its name says what it is for */
	else if (c->phase == OOM_CRASH_FORWARD && !oom_phase_trains(c, begin, at, end) && oom_phase_by_script(&said, begin, end) &&
		 said.phase == OOM_CRASH_INFERENCE)
		oom_phase_settle(c, said.phase, said.phase_confidence, said.phase_evidence);
	else if ((c->phase == OOM_CRASH_FORWARD || c->phase == OOM_CRASH_TRAIN_STEP || (c->phase == OOM_CRASH_LOAD && !c->traceback)) &&
		 oom_phase_by_prose(&said, begin, at, end) &&
		 (said.phase == OOM_CRASH_INFERENCE || said.phase == OOM_CRASH_EVAL || (c->phase == OOM_CRASH_LOAD && said.phase == OOM_CRASH_TRAIN_STEP) ||
		  (c->phase == OOM_CRASH_TRAIN_STEP && said.phase != OOM_CRASH_TRAIN_STEP)))
		oom_phase_settle(c, said.phase, said.phase_confidence, said.phase_evidence);
}

/* A graph's node is of a forward pass; whose, the frames or the command say. */
static void around_node(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	struct oom_crash said = *c;

	said.phase = OOM_CRASH_UNKNOWN;
	if (c->phase == OOM_CRASH_FORWARD && (by_frames(&said, begin, at, end) || oom_phase_by_command(&said, begin, end) || oom_phase_by_script(&said, begin, end) ||
					      oom_phase_by_prose(&said, begin, at, end)) &&
	    (said.phase == OOM_CRASH_INFERENCE || said.phase == OOM_CRASH_EVAL))
		oom_phase_settle(c, said.phase, said.phase_confidence, said.phase_evidence);
}

static void decode_phase(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	const char *line = at, *stop = oom_line_end(at, end);
	/* who killed it says nothing of where it was: a script called train.py reads its data and its weights first */
	const bool host = oom_runtime_is(c, OOM_RUNTIME_HOST) && !oom_phase_ends_traceback(c);

	c->traceback = has_frames(begin, end);
	line = oom_line_begin(begin, at);
	for (const struct oom_phase_rule *r = oom_phase_of_format; r->word; r++)
		if (!strncmp(c->format, r->word, strlen(r->word))) {
			oom_phase_settle(c, r->phase, 0.9, "the message itself");
			return;
		}
	/* JAX names the executable at the message's end, which a page may have broken */
	if (oom_runtime_is(c, OOM_RUNTIME_WORDY))
		stop = end - stop > 200 ? stop + 200 : end;
	if ((oom_phase_by_word(c, oom_phase_of_line, line, stop, 0.85) && c->phase != OOM_CRASH_UNKNOWN) || by_requester(c, begin, line, end) || by_node(c, stop, end) ||
	    (oom_runtime_is(c, OOM_RUNTIME_GRAPH) && !oom_text_find(line, end, "xla_run}}") &&
	     oom_phase_by_word(c, oom_phase_of_line, line, end, 0.8))) {
		if (oom_runtime_is(c, OOM_RUNTIME_GRAPH))
			around_node(c, begin, at, end);
		return;
	}
	if (oom_phase_ends_traceback(c) && by_frames(c, begin, at, end)) {
		around_frames(c, begin, at, end);
		return;
	}
	if ((!c->traceback && oom_phase_by_contrast(c, begin, end)) || oom_phase_by_failure(c, line, at) || oom_phase_by_bar(c, begin, line, stop))
		return;
	if (oom_phase_by_executable(c, oom_format_is(c, OOM_FORMAT_LIST) ? begin : line, end) || oom_phase_by_functions(c, begin, at) || oom_phase_by_workers(c, at, end) ||
	    oom_phase_by_prose(c, begin, at, end) || oom_phase_by_nearest(c, begin, at, end) || oom_phase_by_command(c, begin, end) ||
	    (!host && oom_phase_by_script(c, begin, end)) ||
	    oom_phase_by_people(c, begin, oom_format_is(c, OOM_FORMAT_ADVISES) ? line : end))
		return;
}

/* A forward pass inside a program that trains nothing is inference; a whole model moved by one that
 * serves is its loading. */
static void of_program(struct oom_crash *c, const char *begin, const char *end)
{
	const enum oom_activity does = oom_program_of(c)->activity;

	if (does == OOM_ACTIVITY_TESTS && *c->program && c->phase == OOM_CRASH_UNKNOWN)
		oom_phase_settle(c, OOM_CRASH_TEST, 0.6, "a test run");
	/* a word of drawing among a training's options */
	if (does == OOM_ACTIVITY_TRAINS && c->phase == OOM_CRASH_INFERENCE && c->phase_confidence <= 0.6 && !c->traceback &&
	    (oom_phase_script_trains(c, begin, end) || oom_text_find(begin, end, "train_batch_size")))
		oom_phase_settle(c, OOM_CRASH_TRAIN_STEP, 0.6, "the script's name");
	if (does == OOM_ACTIVITY_TRAINS && c->phase == OOM_CRASH_UNKNOWN && *c->program && !c->traceback && !oom_runtime_is(c, OOM_RUNTIME_HOST))
		oom_phase_settle(c, OOM_CRASH_TRAIN_STEP, 0.5, "a program that only trains");
	if (does != OOM_ACTIVITY_INFERS && does != OOM_ACTIVITY_SERVES)
		return;
	/* what it was made for, where no frames say otherwise; ggml's programs say which part of their start-up they are at */
	if (c->phase == OOM_CRASH_UNKNOWN && *c->program && !c->traceback && does == OOM_ACTIVITY_INFERS && !oom_runtime_is(c, OOM_RUNTIME_LAYERED | OOM_RUNTIME_HOST))
		oom_phase_settle(c, OOM_CRASH_INFERENCE, 0.5, "a program that only infers");
	/* an extension of it may train */
	if (c->phase == OOM_CRASH_FORWARD && !oom_phase_script_trains(c, begin, end))
		oom_phase_settle(c, OOM_CRASH_INFERENCE, 0.85, "a forward pass of a program that only infers");
	else if (c->phase == OOM_CRASH_TO_DEVICE)
		oom_phase_settle(c, OOM_CRASH_LOAD, 0.75, "a program that serves moves its model");
	else if (c->phase == OOM_CRASH_TRAIN_STEP)
		oom_phase_settle(c, OOM_CRASH_UNKNOWN, 0, "");
}

void oom_decode_phase(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	decode_phase(c, begin, at, end);
	of_program(c, begin, end);
	if (oom_runtime_is(c, OOM_RUNTIME_TORCH) && (c->phase == OOM_CRASH_TRAIN_STEP || c->phase == OOM_CRASH_UNKNOWN) &&
	    (oom_text_find(at - begin > 400 ? at - 400 : begin, at, "exp_avg") || oom_text_find(at - begin > 400 ? at - 400 : begin, at, "_foreach_sqrt")))
		oom_phase_settle(c, OOM_CRASH_OPTIMIZER, 0.8, "moments of an Adam");
	/* a command that is shown above a message alone */
	if (c->phase == OOM_CRASH_UNKNOWN && oom_runtime_is(c, OOM_RUNTIME_TORCH) && !c->traceback && oom_does_either(oom_program_of(c)->activity) && oom_told_to_train(begin, end))
		oom_phase_settle(c, OOM_CRASH_TRAIN_STEP, 0.6, "an option that only a training has");
	/* by words alone: what an epoch ends with is no step of it */
	if (c->phase == OOM_CRASH_TRAIN_STEP && c->phase_confidence <= 0.6 && !c->traceback && oom_phase_ends_epoch(begin, end))
		oom_phase_settle(c, OOM_CRASH_EVAL, 0.5, "the end of an epoch");
	/* "when testing on Colab": the one call that is shown loads a model */
	if (oom_runtime_is(c, OOM_RUNTIME_HOST) && c->phase == OOM_CRASH_EVAL && c->phase_confidence <= 0.6 && !c->traceback && oom_text_find(begin, end, ".from_pretrained(") &&
	    !oom_text_find(begin, end, "evaluat") && !oom_text_find(begin, end, "metric"))
		oom_phase_settle(c, OOM_CRASH_LOAD, 0.6, "the call that is shown");
	/* of a loop that somebody shows nobody knows which line it was */
	if (!c->traceback && (c->phase == OOM_CRASH_OPTIMIZER || c->phase == OOM_CRASH_BACKWARD || c->phase == OOM_CRASH_FORWARD) && oom_text_find(begin, end, "loss.backward()") &&
	    oom_text_find(begin, end, ".step()") && !oom_text_find(oom_line_begin(begin, at), oom_line_end(at, end), ".step("))
		oom_phase_settle(c, OOM_CRASH_TRAIN_STEP, 0.6, "a training's loop that is shown");
	c->trains = c->phase == OOM_CRASH_BACKWARD || c->phase == OOM_CRASH_OPTIMIZER ||
		    c->phase == OOM_CRASH_TRAIN_STEP || oom_phase_trains(c, begin, at, end);
}

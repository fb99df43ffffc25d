/* The frames of the traceback that a message ends: where they stand in a log that may hold several, and which of
 * their lines were executed. */
#include "parts.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

const char *oom_text_last(const char *from, const char *to, const char *word)
{
	const char *found = NULL;

	for (const char *p = from; (p = oom_text_find(p, to, word)); p++)
		found = p;
	return found;
}

/* A headline right behind a frame or a line of code stands in the middle of another traceback:
 * two processes write at once. */
static bool interleaved(const char *begin, const char *head)
{
	const char *line;

	while (head > begin && head[-1] != '\n')
		head--;
	if (head == begin)
		return false;
	for (line = head - 1; line > begin && line[-1] != '\n';)
		line--;
	return head - line > 4 && !memcmp(line, "  ", 2) && line[2] != '\n';
}

/* The first traceback behind the message ends in an error that is none of memory: what failed because of it. */
static bool ends_in_another(const char *from, const char *end)
{
	const char *p = oom_text_find(from, end, "Traceback (most recent call last)"), *stop, *colon;

	if (!p)
		return false;
	for (p = oom_line_end(p, end); p < end; p = stop) {
		stop = oom_line_end(p + 1, end);
		if (p + 1 < stop && p[1] != ' ' && p[1] != '\t')
			break;
	}
	if (p >= end)
		return false;
	colon = memchr(p, ':', (size_t)(stop - p));
	return colon && (oom_text_find(p, colon + 1, "Error:") || oom_text_find(p, colon + 1, "Exception:")) && !oom_text_find(p, stop, "emory");
}

/* The traceback whose last line the message is: behind its headline, or the whole excerpt where
 * that was cut off.  IPython prints a banner with the class's name first: the message it
 * triggers on stands before its frames. */
bool oom_traceback(const char *begin, const char *at, const char *end, struct oom_span *s)
{
	static const char *const heads[] = {"Traceback (most recent call last)",
					    "Stack (most recent call last)"};
	static const char *const marks[] = {"File \"",	   ".py in ",	 ".py:",
					    ".py\", line", "backward()", "step()",
					    ".to(",	   ".cuda(",	 ".forward(",
					    "= F.",	   "return F.",	 "torch.nn.functional."};

	s->to = oom_line_end(at, end);
	if (oom_text_find(at, s->to, heads[0])) {
		s->from = at;
		s->to = end;
		return true;
	}
	for (size_t i = 0; i < COUNT(heads); i++) {
		s->from = oom_text_last(begin, at, heads[i]);
		if (s->from && !interleaved(begin, s->from))
			return true;
		if (s->from)
			break;
	}
	s->from = at - begin > 6000 ? at - 6000 : begin;
	/* a server's log says what was raised, then where */
	if (!ends_in_another(s->to, end) && !oom_text_find(s->from, at, "File \"") && s->to < end && oom_text_find(s->to, oom_line_end(s->to + 1, end),
	    heads[0])) {
		s->from = s->to;
		s->to = end;
		return true;
	}
	for (size_t i = 0; i < COUNT(marks); i++) {
		const char *const mark = oom_text_find(s->from, at, marks[i]);

		/* a command and its options stand above the first frame */
		if (mark && i == 0)
			s->from = oom_line_begin(s->from, mark);
		if (mark)
			return true;
	}
	/* a debugger, and ranks that print as they die, show the message first */
	if (!ends_in_another(s->to, end) && (oom_text_find(s->to, end, "File \"") || oom_text_find(s->to, end, heads[0]) ||
					   oom_text_find(s->to, end, "\xe2\x9d\xb1 ") || oom_text_find(s->to, end, "---> "))) {
		s->from = s->to;
		s->to = end;
		return true;
	}
	/* a line of code without its frame */
	return oom_text_find(s->from, at, "\n    ") ||
	       (at - s->from > 4 && !memcmp(s->from, "    ", 4));
}

/* A closure is called from inside the optimizer's step and holds the forward and backward passes:
 * what lies outside it says nothing (Lightning, L-BFGS). */
void oom_traceback_inside_closure(struct oom_span *s)
{
	static const char *const calls[] = {"= closure()", "self.closure(", "in closure",
					    "in _wrap_closure"};

	for (size_t i = 0; i < COUNT(calls); i++) {
		const char *p = oom_text_last(s->from, s->to, calls[i]);

		if (p)
			s->from = p + strlen(calls[i]);
	}
}

/* Rich and IPython print the lines around the one that runs, and an arrow at that one: the others
 * are not frames.  Copies what counts into buf. */
struct oom_span oom_traceback_executed(const struct oom_span *s, char *buf, size_t size)
{
	const bool arrows = oom_text_find(s->from, s->to, "\xe2\x9d\xb1") ||
			    oom_text_find(s->from, s->to, "-> ") ||
			    oom_text_find(s->from, s->to, "> ");
	char *out = buf;

	for (const char *p = s->from; p < s->to;) {
		const char *stop = oom_line_end(p, s->to), *q = p;
		size_t n = (size_t)(stop - p) + (stop < s->to);

		bool arrow = false;

		for (; q < stop && (*q == ' ' || *q == '\t' || (unsigned char)*q >= 0x80); q++)
			arrow |= stop - q > 2 && !memcmp(q, "\xe2\x9d\xb1", 3);
		/* a line that begins with its number and has no arrow; what a library warns of is no frame */
		if (!oom_text_find(p, stop, "Warning: ") && !(arrows && !arrow && q < stop && *q >= '0' && *q <= '9') &&
		    n <= size - (size_t)(out - buf))
			for (size_t i = 0; i < n; i++)
				*out++ = p[i] == '\\' ? '/' : p[i];   /* Windows' paths */
		p = stop < s->to ? stop + 1 : stop;
		/* a function's name that a narrow page put on the next line */
		if (out - buf > 5 && !memcmp(out - 5, ", in\n", 5)) {
			out[-1] = ' ';
			while (p < s->to && *p == ' ')
				p++;
		}
	}
	return (struct oom_span){buf, out};
}

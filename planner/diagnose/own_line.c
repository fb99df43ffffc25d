/* The line of a program that led to the request: of the frames before a message the innermost that lies in no installed
 * package, since that is what its owner can change. */
#include <stdio.h>
#include <string.h>

#include "tables.h"

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Where Python and its packages lie; paths are written with "/" (traceback.c). */
static bool is_installed(const char *from, const char *to)
{
	static const char *const places[] = {"site-packages", "dist-packages", "/lib/python", "/Lib/", "<frozen", "<string>", "<timed exec>", "/runpy.py", "importlib", ".exe/", "/bin/", ".pyx",
	    /* packages whose place a page cut off */
	    "/transformers/models", "/transformers/trainer", "/transformers/modeling", "/transformers/generation", "/peft/tuners", "/peft/peft_model", "/accelerate/hooks",
	    "/accelerate/utils", "/deepspeed/runtime", "/torch/nn", "/torch/utils", "/torch/_", "/torch/autograd", "/diffusers/pipelines", "/diffusers/models"};

	for (size_t i = 0; i < COUNT(places); i++)
		if (oom_text_find(from, to, places[i]))
			return true;
	return false;
}

struct frame {
	struct oom_span path, number, function;
};

static bool digit(char ch)
{
	return ch >= '0' && ch <= '9';
}

static const char *digits_end(const char *p, const char *stop)
{
	while (p < stop && digit(*p))
		p++;
	return p;
}

/* Python's: File "x.py", line 12, in f */
static bool of_python(const char *line, const char *stop, struct frame *f)
{
	const char *const file = oom_text_find(line, stop, "File \""), *const close = file ? oom_text_find(file + 6, stop, "\", line ") : NULL;
	const char *const number = close ? close + 8 : NULL, *const after = number ? digits_end(number, stop) : NULL;
	const char *const in = after ? oom_text_find(after, stop, ", in ") : NULL;

	if (!number || after == number)
		return false;
	f->path = (struct oom_span){file + 6, close};
	f->number = (struct oom_span){number, after};
	f->function = (struct oom_span){in ? in + 5 : stop, stop};
	return true;
}

/* IPython's and Rich's: File ~/x.py:12, in f(a); /x.py:12 in f */
static bool of_notebook(const char *line, const char *stop, struct frame *f)
{
	const char *const dot = oom_text_find(line, stop, ".py:"), *const number = dot ? dot + 4 : NULL;
	const char *const after = number ? digits_end(number, stop) : NULL, *in = after ? oom_text_find(after, stop, "in ") : NULL;
	const char *path = dot;

	/* a place in a log's line is no frame */
	if (!in || after == number || in - after > 2)
		return false;
	while (path > line && path[-1] != ' ' && path[-1] != '\t')
		path--;
	/* the tail of a path that a box broke: what it lies in stands on the line above */
	if (!memchr(path, '/', (size_t)(dot - path)) && path - line <= 6 && path > line)
		return false;
	f->path = (struct oom_span){path, dot + 3};
	f->number = (struct oom_span){number, after};
	f->function = (struct oom_span){in + 3, stop};
	return true;
}

/* Its last two parts: a folder says which of many "model.py" it is. */
static const char *tail(const struct oom_span *path)
{
	const char *p = path->to;

	for (int slashes = 0; p > path->from; p--)
		if (p[-1] == '/' && ++slashes == 2)
			break;
	return p;
}

static const char *past_marks(const char *p, const char *stop)
{
	while (p < stop && (*p == ' ' || *p == '\t' || *p == '-' || *p == '>' || (unsigned char)*p >= 0x80))
		p++;
	return p;
}

/* The code below a frame: without its indentation, or an arrow and its number; what a logger put before the frame stands
 * before it too. */
static struct oom_span code_of(const char *frame, const char *p, const char *to)
{
	const char *const stop = oom_line_end(p, to), *const file = oom_text_find(frame, p, "File \"");
	const ptrdiff_t logged = file ? file - frame : 0;

	if (logged && strspn(frame, " \t") < (size_t)logged && stop - p > logged && !memcmp(frame, p, logged < 5 ? (size_t)logged : 5))
		p += logged;
	/* a launcher's rank, Rich's box, the arrow and number of the line */
	if (stop - p > 7 && !memcmp(p, "[rank", 5) && memchr(p, ' ', (size_t)(stop - p)))
		p = memchr(p, ' ', (size_t)(stop - p));
	/* a box behind what a launcher put before it: the line below its frame is blank, or of another line's code */
	if (oom_text_find(frame, oom_line_end(frame, to), "\xe2\x94\x82") && oom_text_find(p, stop, "\xe2\x94\x82"))
		return (struct oom_span){p, p};
	p = past_marks(p, stop);
	if (p < stop && digit(*p) && digits_end(p, stop) < stop && *digits_end(p, stop) == ' ')
		p = past_marks(digits_end(p, stop), stop);
	/* a mark below another's code, the next frame, the error itself */
	return p < stop && (*p == '^' || *p == '~' || oom_text_find(p, stop, "File \"") || oom_text_find(p, stop, "Error: ")) ? (struct oom_span){p, p} :
																(struct oom_span){p, stop};
}

/* At most so many characters of a span, for "%.*s". */
static int shown(const char *from, const char *to, int most)
{
	return to - from < most ? (int)(to - from) : most;
}

static bool of_name(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || digit(ch) || ch == '_';
}

/* "args.crop_size", "FLAGS.max_n_frames", "cfg.DATA.IMG_SIZE", "self.max_len": what a script calls its settings, and among
 * them one of how many or how large. */
static bool is_setting(const char *from, const char *to)
{
	static const char *const holders[] = {"args", "arg", "opt", "opts", "options", "FLAGS", "flags", "cfg", "CFG", "config", "conf", "hparams", "hps", "hp", "params", "settings", "self"};
	const char *dot = from, *last = to;

	while (dot < to && *dot != '.')
		dot++;
	while (last > dot && last[-1] != '.')
		last--;
	if (dot == to || last == dot || last == to || oom_told_about_name(last, (size_t)(to - last)) == OOM_ABOUT_ELSE)
		return false;
	for (size_t i = 0; i < COUNT(holders); i++)
		if ((size_t)(dot - from) == strlen(holders[i]) && !memcmp(from, holders[i], strlen(holders[i])))
			return true;
	return false;
}

/* The first such name of the code. */
static void name_setting(struct oom_crash *c, struct oom_span code)
{
	c->line_name[0] = 0;
	for (const char *p = code.from; p < code.to; p++) {
		const char *to = p;

		while (to < code.to && (of_name(*to) || (*to == '.' && to + 1 < code.to && of_name(to[1]))))
			to++;
		/* a call is none */
		if (to > p && (to == code.to || *to != '(') && (size_t)(to - p) < sizeof(c->line_name) && is_setting(p, to)) {
			snprintf(c->line_name, sizeof(c->line_name), "%.*s", (int)(to - p), p);
			return;
		}
		p = to > p ? to - 1 : p;
	}
}

static void keep(struct oom_crash *c, const struct frame *f, struct oom_span code)
{
	const char *const path = tail(&f->path), *end = f->function.from;

	/* nothing ends the text but its length */
	while (end < f->function.to && *end != '(' && *end != '\n' && *end != ' ')
		end++;
	snprintf(c->own_line, sizeof(c->own_line), "%.*s:%.*s, in %.*s%s%.*s", shown(path, f->path.to, 60), path,
		 shown(f->number.from, f->number.to, 8), f->number.from, shown(f->function.from, end, 40), f->function.from,
		 code.to > code.from ? ": " : "", shown(code.from, code.to, 80), code.from);
	name_setting(c, code);
}

void oom_decode_own_line(struct oom_crash *c, const char *begin, const char *at, const char *end)
{
	char buf[32 << 10];
	struct oom_span s;

	c->own_line[0] = c->line_name[0] = 0;
	if (!c->traceback || oom_format_is(c, OOM_FORMAT_ANYWHERE) || oom_program_of(c)->activity == OOM_ACTIVITY_SERVES || oom_program_of(c)->activity == OOM_ACTIVITY_INFERS ||
	    !oom_traceback(begin, at, end, &s))
		return;
	s = oom_traceback_executed(&s, buf, sizeof(buf));
	for (const char *p = s.from; p < s.to;) {
		const char *const stop = oom_line_end(p, s.to), *const next = stop < s.to ? stop + 1 : stop;
		struct frame f;

		if ((of_python(p, stop, &f) || of_notebook(p, stop, &f)) && !is_installed(f.path.from, f.path.to))
			keep(c, &f, code_of(p, next, s.to));
		p = next;
	}
}

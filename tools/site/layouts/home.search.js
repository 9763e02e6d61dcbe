{{- $pages := slice -}}
{{- range site.Pages -}}
  {{- if .File -}}
    {{- $headings := slice -}}
    {{- $fragments := .Fragments -}}
    {{- range .Fragments.Identifiers -}}
      {{- with index $fragments.HeadingsMap . -}}
        {{- $headings = $headings | append (dict "id" .ID "title" (htmlUnescape (plainify .Title))) -}}
      {{- end -}}
    {{- end -}}
    {{- $path := strings.TrimPrefix "/" .RelPermalink -}}
    {{- $pages = $pages | append (dict "path" $path "title" (partial "title.html" .) "headings" $headings "text" (htmlUnescape .Plain)) -}}
  {{- end -}}
{{- end -}}
window.plinthSearchIndex = {{ $pages | jsonify | safeJS }}

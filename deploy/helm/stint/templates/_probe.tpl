{{- /* A probe asks where clients do. It shows no certificate: where those are asked
for, the program asks itself. */ -}}
{{- define "stint.probe" -}}
{{- $v := (index . 0).Values -}}
{{- if $v.tls.clientCA -}}
exec:
  command: [/stint, health, http://127.0.0.1:9090/{{ index . 1 }}]
{{- else -}}
httpGet: {path: /{{ index . 1 }}, port: http{{ if $v.tls.existingSecret }}, scheme: HTTPS{{ end }}}
{{- end -}}
{{- end -}}

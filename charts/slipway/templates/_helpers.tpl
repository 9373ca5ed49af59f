{{/* Names are fixed: the CRD and the ClusterRoles allow one installation in a cluster. */}}

{{- define "slipway.selector" -}}
app.kubernetes.io/name: slipway
app.kubernetes.io/component: manager
{{- end -}}

{{/* The tag of both images. */}}
{{- define "slipway.tag" -}}
{{- get .Values.image "tag" | default .Chart.AppVersion -}}
{{- end -}}

{{/* The label of the version. A label is shorter than a tag can be, and begins and ends with a letter or a digit. */}}
{{- define "slipway.version" -}}
{{- include "slipway.tag" . | trunc 63 | trimAll "._-" -}}
{{- end -}}

{{/* Labels of an object. Call it with a dict of root, and optionally component and labels; the chart's own labels win. */}}
{{- define "slipway.labels" -}}
{{- $root := .root -}}
{{- $own := dict
  "app.kubernetes.io/name" "slipway"
  "app.kubernetes.io/part-of" "slipway"
  "app.kubernetes.io/version" (include "slipway.version" $root)
  "app.kubernetes.io/managed-by" $root.Release.Service
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- with get . "component" }}{{- $_ := set $own "app.kubernetes.io/component" . }}{{- end -}}
{{- toYaml (mergeOverwrite (dict) (get $root.Values "commonLabels" | default dict) (get . "labels" | default dict) $own) -}}
{{- end -}}

{{/* Annotations of an object, with their key; nothing if there are none. Call it with a dict of root and optionally annotations. */}}
{{- define "slipway.annotations" -}}
{{- with mergeOverwrite (dict) (get .root.Values "commonAnnotations" | default dict) (get . "annotations" | default dict) -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* An image. Call it with a dict of root, name and image. */}}
{{- define "slipway.image" -}}
{{- $repository := get .image "repository" | default (printf "%s/%s" (.root.Values.image.prefix | trimSuffix "/") .name) -}}
{{- with get .image "digest" -}}
{{- printf "%s@%s" $repository . -}}
{{- else -}}
{{- printf "%s:%s" $repository (get .image "tag" | default (include "slipway.tag" .root)) -}}
{{- end -}}
{{- end -}}

{{/* Takes what is null out of an object, in place. */}}
{{- define "slipway.dropNulls" -}}
{{- range $key, $value := . -}}
{{- if kindIs "invalid" $value -}}{{- $_ := unset $ $key -}}
{{- else if kindIs "map" $value -}}{{- include "slipway.dropNulls" $value -}}
{{- else if kindIs "slice" $value -}}{{- range $value -}}{{- if kindIs "map" . -}}{{- include "slipway.dropNulls" . -}}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The manager's configuration file. It leaves to the manager what is null, as in a file of values that takes back what another one sets. */}}
{{- define "slipway.config" -}}
{{- $config := mergeOverwrite (dict "apiVersion" "config.slipway.dev/v1alpha1" "kind" "ManagerConfiguration") (deepCopy (get .Values "config" | default dict)) -}}
{{- include "slipway.dropNulls" $config -}}
{{- with get .Values "watchNamespaces" -}}
{{- if get $config "namespaces" -}}
{{- fail "set watchNamespaces or config.namespaces, not both: watchNamespaces sets config.namespaces and grants the rights" -}}
{{- end -}}
{{- $_ := set $config "namespaces" . -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The port of a bind address, or nothing if "0" turns the endpoint off. */}}
{{- define "slipway.port" -}}
{{- if ne . "0" -}}{{- regexFind "[0-9]+$" . -}}{{- end -}}
{{- end -}}

{{- define "slipway.metricsPort" -}}
{{- include "slipway.port" (dig "metrics" "bindAddress" ":8443" (include "slipway.config" . | fromYaml)) -}}
{{- end -}}

{{- define "slipway.healthPort" -}}
{{- include "slipway.port" (dig "health" "bindAddress" ":8081" (include "slipway.config" . | fromYaml)) -}}
{{- end -}}

{{- define "slipway.metricsProtocol" -}}
{{- dig "metrics" "protocol" "HTTPS" (include "slipway.config" . | fromYaml) | lower -}}
{{- end -}}

{{/* Where the manager's lease is. */}}
{{- define "slipway.leaseNamespace" -}}
{{- dig "leaderElection" "namespace" "" (include "slipway.config" . | fromYaml) | default .Release.Namespace -}}
{{- end -}}

{{/* Whether the manager asks the API server who scrapes it. */}}
{{- define "slipway.metricsAuthenticated" -}}
{{- if and (include "slipway.metricsPort" .) (eq (dig "metrics" "authentication" "Kubernetes" (include "slipway.config" . | fromYaml)) "Kubernetes") -}}true{{- end -}}
{{- end -}}

{{- define "slipway.subject" -}}
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end -}}

{{- /* What the processes of all roles share. */ -}}
{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* Of the secrets that a process gets, the files: an environment would be handed to all that it starts. */ -}}
{{- define "sluice.environment" -}}
envFrom:
  - configMapRef:
      name: {{ .root.Release.Name }}-settings
env:
  {{- range (get .root.Values.secrets .of).settings }}
  - name: {{ . }}_FILE
    value: /run/secrets/sluice/{{ . }}
  {{- end }}
{{- end }}

{{- define "sluice.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: data
    emptyDir: {}
  - name: tmp
    emptyDir: {}
  - name: secrets
    secret:
      secretName: {{ (get .root.Values.secrets .of).name | quote }}
      {{- /* 0440: for the group of the pod's user. Readers of YAML differ about octal numbers. */}}
      defaultMode: 288
      items:
        {{- range (get .root.Values.secrets .of).settings }}
        - key: {{ . }}
          path: {{ . }}
        {{- end }}
{{- end }}

{{- define "sluice.container" -}}
image: {{ include "sluice.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: data
    mountPath: /data
  - name: tmp
    mountPath: /tmp
  - name: secrets
    mountPath: /run/secrets/sluice
    readOnly: true
{{- end }}

package api

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// A rule is tested by two specs that differ in one thing: the API server takes
// the valid one and refuses the invalid one with exactly one sentence.
type rule struct {
	valid, invalid string
	want           string // field: reason: message
}

// rules has one entry for each validation rule of the API, and for those
// mistakes that the schema itself catches and that users are likely to make.
var rules = map[string]rule{
	"image without white space": {
		valid:   `{image: "registry.example:5000/mcp/everything:1.4@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", transport: {type: stdio}}`,
		invalid: `{image: "everything: 1.4", transport: {type: stdio}}`,
		want:    `spec.image: Invalid value: "everything: 1.4": image must not contain white space`,
	},
	"env names": {
		valid:   `{image: x, transport: {type: stdio}, env: [{name: MY_SLIPWAY_SESSION, value: a}]}`,
		invalid: `{image: x, transport: {type: stdio}, env: [{name: SLIPWAY_SESSION, value: a}]}`,
		want:    `spec.env: Invalid value: env must not set variables whose name starts with SLIPWAY_: they are reserved`,
	},
	"volume names": {
		valid:   `{image: x, transport: {type: stdio}, volumes: [{name: data, emptyDir: {}}]}`,
		invalid: `{image: x, transport: {type: stdio}, volumes: [{name: slipway-data, emptyDir: {}}]}`,
		want:    `spec.volumes: Invalid value: volumes must not have names that start with slipway-: they are reserved`,
	},
	"mounts of reserved volumes": {
		valid:   `{image: x, transport: {type: stdio}, volumes: [{name: data, emptyDir: {}}], volumeMounts: [{name: data, mountPath: /data}]}`,
		invalid: `{image: x, transport: {type: stdio}, volumeMounts: [{name: slipway-shared, mountPath: /x}]}`,
		want:    `spec.volumeMounts: Invalid value: volumeMounts must not name volumes that start with slipway-: they are reserved`,
	},
	"mount of a volume that is not there": {
		valid:   `{image: x, transport: {type: stdio}, volumes: [{name: c, emptyDir: {}}, {name: d, emptyDir: {}}], volumeMounts: [{name: c, mountPath: /c}, {name: d, mountPath: /d}]}`,
		invalid: `{image: x, transport: {type: stdio}, volumes: [{name: c, emptyDir: {}}], volumeMounts: [{name: c, mountPath: /c}, {name: d, mountPath: /d}]}`,
		want:    `spec.volumeMounts: Invalid value: volumeMounts names volume d, which is not in volumes: add it there, or correct the name`,
	},
	"mount without any volumes": {
		valid:   `{image: x, transport: {type: stdio}, volumes: [{name: d, emptyDir: {}}], volumeMounts: [{name: d, mountPath: /d}, {name: d, mountPath: /e}]}`,
		invalid: `{image: x, transport: {type: stdio}, volumeMounts: [{name: d, mountPath: /d}]}`,
		want:    `spec.volumeMounts: Invalid value: volumeMounts names volume d, which is not in volumes: add it there, or correct the name`,
	},
	"reserved mount path": {
		valid:   `{image: x, transport: {type: stdio}, volumes: [{name: data, emptyDir: {}}], volumeMounts: [{name: data, mountPath: /data/slipway}]}`,
		invalid: `{image: x, transport: {type: stdio}, volumes: [{name: data, emptyDir: {}}], volumeMounts: [{name: data, mountPath: /slipway}]}`,
		want:    `spec.volumeMounts: Invalid value: volumeMounts must not have paths that start with /slipway: they are reserved`,
	},
	"reserved mount path below": {
		valid:   `{image: x, transport: {type: stdio}, volumes: [{name: data, emptyDir: {}}], volumeMounts: [{name: data, mountPath: /home}]}`,
		invalid: `{image: x, transport: {type: stdio}, volumes: [{name: data, emptyDir: {}}], volumeMounts: [{name: data, mountPath: /slipway-home/cache}]}`,
		want:    `spec.volumeMounts: Invalid value: volumeMounts must not have paths that start with /slipway: they are reserved`,
	},
	"topology spread constraints": {
		valid:   `{image: x, transport: {type: stdio}, podTemplate: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}}`,
		invalid: `{image: x, transport: {type: stdio}, podTemplate: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}}`,
		want:    `spec.podTemplate.topologySpreadConstraints[1]: Duplicate value: {"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}`,
	},
	"stdio block on an HTTP server": {
		valid:   `{image: x, transport: {type: stdio, stdio: {framing: ContentLength}}}`,
		invalid: `{image: x, transport: {type: streamable-http, streamableHTTP: {port: 3000}, stdio: {framing: ContentLength}}}`,
		want:    `spec.transport.stdio: Forbidden: transport.stdio must be left out unless transport.type is stdio`,
	},
	"streamableHTTP block on a stdio server": {
		valid:   `{image: x, transport: {type: streamable-http, streamableHTTP: {port: 3000}}}`,
		invalid: `{image: x, transport: {type: stdio, streamableHTTP: {port: 3000}}}`,
		want:    `spec.transport.streamableHTTP: Forbidden: transport.streamableHTTP must be left out unless transport.type is streamable-http`,
	},
	"sse block on a stdio server": {
		valid:   `{image: x, transport: {type: sse, sse: {port: 3000}}}`,
		invalid: `{image: x, transport: {type: stdio, sse: {port: 3000}}}`,
		want:    `spec.transport.sse: Forbidden: transport.sse must be left out unless transport.type is sse`,
	},
	"streamable-http without a port": {
		valid:   `{image: x, transport: {type: streamable-http, streamableHTTP: {port: 8080, path: /}}}`,
		invalid: `{image: x, transport: {type: streamable-http}}`,
		want:    `spec.transport.streamableHTTP: Required value: transport.streamableHTTP.port must be set when transport.type is streamable-http: it is the port that the server listens on`,
	},
	"sse without a port": {
		valid:   `{image: x, transport: {type: sse, sse: {port: 8080, path: /events}}}`,
		invalid: `{image: x, transport: {type: sse}}`,
		want:    `spec.transport.sse: Required value: transport.sse.port must be set when transport.type is sse: it is the port that the server listens on`,
	},
	"isolation on an HTTP server": {
		valid:   `{image: x, transport: {type: stdio}, session: {isolation: PerSession}}`,
		invalid: `{image: x, transport: {type: streamable-http, streamableHTTP: {port: 3000}}, session: {isolation: PerSession}}`,
		want:    `spec.session.isolation: Forbidden: session.isolation is for stdio servers only: a server that speaks HTTP keeps its own sessions`,
	},
	"warm on an HTTP server": {
		valid:   `{image: x, transport: {type: stdio}, session: {warm: 2}}`,
		invalid: `{image: x, transport: {type: sse, sse: {port: 3000}}, session: {warm: 2}}`,
		want:    `spec.session.warm: Forbidden: session.warm is for stdio servers only: a server that speaks HTTP is one process for all sessions`,
	},
	"warm with one shared process": {
		valid:   `{image: x, transport: {type: stdio}, session: {isolation: Shared}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {isolation: Shared, warm: 1}}`,
		want:    `spec.session.warm: Forbidden: session.warm must not be set with isolation Shared: there all sessions use one process`,
	},
	"clients without sessions of one shared process": {
		valid:   `{image: x, transport: {type: sse, sse: {port: 3000}}, session: {statelessClients: Translate}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {isolation: Shared, statelessClients: Native}}`,
		want:    `spec.session.statelessClients: Forbidden: session.statelessClients must not be set with isolation Shared: there all clients use one process, whatever revision they speak`,
	},
	"first port of the adapter": {
		valid:   `{image: x, transport: {type: streamable-http, streamableHTTP: {port: 16269}}}`,
		invalid: `{image: x, transport: {type: streamable-http, streamableHTTP: {port: 16270}}}`,
		want:    `spec.transport.streamableHTTP.port: Invalid value: 16270: port must not be one of 16270 to 16279: they are reserved for the adapter in the same pod`,
	},
	"last port of the adapter": {
		valid:   `{image: x, transport: {type: sse, sse: {port: 16280}}}`,
		invalid: `{image: x, transport: {type: sse, sse: {port: 16279}}}`,
		want:    `spec.transport.sse.port: Invalid value: 16279: port must not be one of 16270 to 16279: they are reserved for the adapter in the same pod`,
	},
	"path": {
		valid:   `{image: x, transport: {type: streamable-http, streamableHTTP: {port: 3000, path: /v1/mcp}}}`,
		invalid: `{image: x, transport: {type: streamable-http, streamableHTTP: {port: 3000, path: mcp}}}`,
		want:    `spec.transport.streamableHTTP.path: Invalid value: "mcp": path must start with '/' and hold no white space, '?' or '#'`,
	},
	"path with a query": {
		valid:   `{image: x, transport: {type: sse, sse: {port: 3000, path: /v1/sse}}}`,
		invalid: `{image: x, transport: {type: sse, sse: {port: 3000, path: "/sse?x=1"}}}`,
		want:    `spec.transport.sse.path: Invalid value: "/sse?x=1": path must start with '/' and hold no white space, '?' or '#'`,
	},
	"idle timeout": {
		valid:   `{image: x, transport: {type: stdio}, session: {idleTimeout: 1h30m}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {idleTimeout: 30 minutes}}`,
		want:    `spec.session.idleTimeout: Invalid value: "30 minutes": session.idleTimeout must be a duration from 1s to 8760h, such as 90s, 30m or 1h30m`,
	},
	"negative idle timeout": {
		valid:   `{image: x, transport: {type: stdio}, session: {idleTimeout: 1s}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {idleTimeout: -1s}}`,
		want:    `spec.session.idleTimeout: Invalid value: "-1s": session.idleTimeout must be a duration from 1s to 8760h, such as 90s, 30m or 1h30m`,
	},
	"maximum lifetime": {
		valid:   `{image: x, transport: {type: stdio}, session: {maxLifetime: 168h}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {maxLifetime: 999ms}}`,
		want:    `spec.session.maxLifetime: Invalid value: "999ms": session.maxLifetime must be a duration from 1s to 8760h, such as 90s, 30m or 24h`,
	},
	"start timeout": {
		valid:   `{image: x, transport: {type: stdio}, session: {startTimeout: 1h}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {startTimeout: 61m}}`,
		want:    `spec.session.startTimeout: Invalid value: "61m": session.startTimeout must be a duration from 1s to 1h, such as 90s or 5m`,
	},
	"start timeout of no time": {
		valid:   `{image: x, transport: {type: stdio}, session: {startTimeout: 1s}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {startTimeout: 999ms}}`,
		want:    `spec.session.startTimeout: Invalid value: "999ms": session.startTimeout must be a duration from 1s to 1h, such as 90s or 5m`,
	},
	"call timeout": {
		valid:   `{image: x, transport: {type: stdio}, session: {callTimeout: 1m500ms}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {callTimeout: "10"}}`,
		want:    `spec.session.callTimeout: Invalid value: "10": session.callTimeout must be a duration from 1s to 8760h, such as 90s or 10m`,
	},
	"drain timeout": {
		valid:   `{image: x, transport: {type: stdio}, session: {drainTimeout: 0s}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {drainTimeout: 25h}}`,
		want:    `spec.session.drainTimeout: Invalid value: "25h": session.drainTimeout must be a duration from 0s to 24h, such as 60s or 5m`,
	},
	"negative drain timeout": {
		valid:   `{image: x, transport: {type: stdio}, session: {drainTimeout: 1.5s}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {drainTimeout: -5s}}`,
		want:    `spec.session.drainTimeout: Invalid value: "-5s": session.drainTimeout must be a duration from 0s to 24h, such as 60s or 5m`,
	},
	"key rotation without a pause": {
		valid:   `{image: x, transport: {type: stdio}, session: {keyRotation: 720h}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {keyRotation: 59m}}`,
		want:    `spec.session.keyRotation: Invalid value: "59m": session.keyRotation must be a duration from 1h to 8760h, such as 24h or 720h`,
	},
	"key rotation in days": {
		valid:   `{image: x, transport: {type: stdio}, session: {keyRotation: 1h}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {keyRotation: 30d}}`,
		want:    `spec.session.keyRotation: Invalid value: "30d": session.keyRotation must be a duration from 1h to 8760h, such as 24h or 720h`,
	},
	"timeout that would block a probe": {
		valid:   `{image: x, transport: {type: stdio}, verification: {timeout: 1m}}`,
		invalid: `{image: x, transport: {type: stdio}, verification: {timeout: 61s}}`,
		want:    `spec.verification.timeout: Invalid value: "61s": verification.timeout must be a duration from 100ms to 1m, such as 500ms or 5s`,
	},
	"duration that adds up to too much": {
		valid:   `{image: x, transport: {type: stdio}, session: {maxLifetime: 8760h}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {maxLifetime: 99999h99999h99999h}}`,
		want:    `spec.session.maxLifetime: Invalid value: "99999h99999h99999h": session.maxLifetime must be a duration from 1s to 8760h, such as 90s, 30m or 24h`,
	},
	"verification interval": {
		valid:   `{image: x, transport: {type: stdio}, verification: {interval: 1s}}`,
		invalid: `{image: x, transport: {type: stdio}, verification: {interval: 10ms}}`,
		want:    `spec.verification.interval: Invalid value: "10ms": verification.interval must be a duration from 1s to 1h, such as 10s or 1m`,
	},
	"verification timeout": {
		valid:   `{image: x, transport: {type: stdio}, verification: {timeout: 100ms}}`,
		invalid: `{image: x, transport: {type: stdio}, verification: {timeout: 99ms}}`,
		want:    `spec.verification.timeout: Invalid value: "99ms": verification.timeout must be a duration from 100ms to 1m, such as 500ms or 5s`,
	},
	"verbosity": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {verbosity: 5}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {verbosity: 6}}`,
		want:    `spec.adapter.verbosity: Invalid value: 6: spec.adapter.verbosity in body should be less than or equal to 5`,
	},
	"origin": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {allowedOrigins: ["*", "https://chat.example.com", "http://localhost:8080"]}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {allowedOrigins: ["chat.example.com"]}}`,
		want:    `spec.adapter.allowedOrigins[0]: Invalid value: "chat.example.com": an origin must look like https://chat.example.com or http://localhost:8080, without a path, or be *`,
	},
	"host": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {allowedHosts: ["*", "mcp.example.com:8443", "[::1]:80"]}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {allowedHosts: ["https://mcp.example.com"]}}`,
		want:    `spec.adapter.allowedHosts[0]: Invalid value: "https://mcp.example.com": a host must look like mcp.example.com or mcp.example.com:8443, without a scheme or path, or be *`,
	},
	"service annotations": {
		valid:   `{image: x, transport: {type: stdio}, service: {annotations: {example.com/load-balancer: internal}}}`,
		invalid: `{image: x, transport: {type: stdio}, service: {annotations: {mcp.slipway.dev/load-balancer: internal}}}`,
		want:    `spec.service.annotations: Invalid value: service.annotations must not have keys that start with mcp.slipway.dev/: they are reserved`,
	},
	"pod labels": {
		valid:   `{image: x, transport: {type: stdio}, podTemplate: {metadata: {labels: {example.com/team: a}}}}`,
		invalid: `{image: x, transport: {type: stdio}, podTemplate: {metadata: {labels: {mcp.slipway.dev/server: a}}}}`,
		want:    `spec.podTemplate.metadata.labels: Invalid value: podTemplate.metadata.labels must not have keys that start with mcp.slipway.dev/: they are reserved`,
	},
	"pod annotations": {
		valid:   `{image: x, transport: {type: stdio}, podTemplate: {metadata: {annotations: {example.com/team: "a b"}}}}`,
		invalid: `{image: x, transport: {type: stdio}, podTemplate: {metadata: {annotations: {mcp.slipway.dev/x: a}}}}`,
		want:    `spec.podTemplate.metadata.annotations: Invalid value: podTemplate.metadata.annotations must not have keys that start with mcp.slipway.dev/: they are reserved`,
	},
	"label values": {
		valid:   `{image: x, transport: {type: stdio}, podTemplate: {nodeSelector: {disk: ssd-1, empty: ""}}}`,
		invalid: `{image: x, transport: {type: stdio}, podTemplate: {nodeSelector: {disk: "fast ssd"}}}`,
		want:    `spec.podTemplate.nodeSelector[disk]: Invalid value: "fast ssd": a label's value must be empty or start and end with a letter or digit, with letters, digits, '-', '_' and '.' between`,
	},

	"keys of service annotations": {
		valid:   `{image: x, transport: {type: stdio}, service: {annotations: {Team_1.a: b}}}`,
		invalid: `{image: x, transport: {type: stdio}, service: {annotations: {"a b!": c}}}`,
		want:    `spec.service.annotations: Invalid value: service.annotations must have keys like team or example.com/team`,
	},
	"keys of pod labels": {
		valid:   `{image: x, transport: {type: stdio}, podTemplate: {metadata: {labels: {example.com/team: a}}}}`,
		invalid: `{image: x, transport: {type: stdio}, podTemplate: {metadata: {labels: {"no good/at all/x": a}}}}`,
		want:    `spec.podTemplate.metadata.labels: Invalid value: podTemplate.metadata.labels must have keys like team or example.com/team`,
	},
	"keys of pod annotations": {
		valid:   `{image: x, transport: {type: stdio}, podTemplate: {metadata: {annotations: {a: b}}}}`,
		invalid: `{image: x, transport: {type: stdio}, podTemplate: {metadata: {annotations: {"-a": b}}}}`,
		want:    `spec.podTemplate.metadata.annotations: Invalid value: podTemplate.metadata.annotations must have keys like team or example.com/team`,
	},
	"keys of the node selector": {
		valid:   `{image: x, transport: {type: stdio}, podTemplate: {nodeSelector: {kubernetes.io/os: linux}}}`,
		invalid: `{image: x, transport: {type: stdio}, podTemplate: {nodeSelector: {"kubernetes.io/": linux}}}`,
		want:    `spec.podTemplate.nodeSelector: Invalid value: podTemplate.nodeSelector must have keys like team or example.com/team`,
	},
	"body limit without room in the memory": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {limits: {body: 67108864}}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {limits: {body: 67108865}}}`,
		want:    `spec.adapter.limits.body: Invalid value: adapter.limits.body is 67108865 bytes, which needs adapter.resources.limits.memory of at least 257Mi: raise the memory, or lower adapter.limits.body`,
	},
	"line limit without room in the memory": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {resources: {limits: {memory: 1Gi}}, limits: {line: 268435456}}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {limits: {line: 268435456}}}`,
		want:    `spec.adapter.limits.line: Invalid value: adapter.limits.line is 268435456 bytes, which needs adapter.resources.limits.memory of at least 1024Mi: raise the memory, or lower adapter.limits.line`,
	},
	"line limit of a server that speaks HTTP": {
		valid:   `{image: x, transport: {type: sse, sse: {port: 3000}}, adapter: {resources: {limits: {memory: 1073741824}}, limits: {line: 268435456}}}`,
		invalid: `{image: x, transport: {type: sse, sse: {port: 3000}}, adapter: {resources: {limits: {memory: 1073741823}}, limits: {line: 268435456}}}`,
		want:    `spec.adapter.limits.line: Invalid value: adapter.limits.line is 268435456 bytes, which needs adapter.resources.limits.memory of at least 1024Mi: raise the memory, or lower adapter.limits.line`,
	},
	"small body limit": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {limits: {body: 1Ki}}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {limits: {body: 1023}}}`,
		want:    `spec.adapter.limits.body: Invalid value: 1023: adapter.limits.body must be a number of bytes from 1Ki to 1Gi, such as 512Ki or 32Mi`,
	},
	"large line limit": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {resources: {limits: {memory: 4Gi}}, limits: {line: 1Gi}}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {resources: {limits: {memory: 8Gi}}, limits: {line: 1.1Gi}}}`,
		want:    `spec.adapter.limits.line: Invalid value: "1.1Gi": adapter.limits.line must be a number of bytes from 1Ki to 1Gi, such as 512Ki or 32Mi`,
	},
	"negative replay limit": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {limits: {replay: 0}}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {limits: {replay: "-1"}}}`,
		want:    `spec.adapter.limits.replay: Invalid value: "-1": adapter.limits.replay must be a number of bytes from 0 to 1Gi, such as 512Ki or 32Mi`,
	},
	"answer timeout": {
		valid:   `{image: x, transport: {type: stdio}, session: {answerTimeout: 1h}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {answerTimeout: 0s}}`,
		want:    `spec.session.answerTimeout: Invalid value: "0s": session.answerTimeout must be a duration from 1s to 8760h, such as 90s or 10m`,
	},
	"sse server without sessions": {
		valid:   `{image: x, transport: {type: sse, sessions: Stateful, sse: {port: 3000}}}`,
		invalid: `{image: x, transport: {type: sse, sessions: Stateless, sse: {port: 3000}}}`,
		want:    `spec.transport.sessions: Invalid value: transport.sessions must not be Stateless when transport.type is sse: that transport has sessions`,
	},
	"service labels": {
		valid:   `{image: x, transport: {type: stdio}, service: {labels: {example.com/gateway: mcp}}}`,
		invalid: `{image: x, transport: {type: stdio}, service: {labels: {app.kubernetes.io/managed-by: mcp}}}`,
		want:    `spec.service.labels: Invalid value: service.labels must not have keys that start with mcp.slipway.dev/ or app.kubernetes.io/: they are reserved`,
	},
	"keys of service labels": {
		valid:   `{image: x, transport: {type: stdio}, service: {labels: {Team_1.a: b}}}`,
		invalid: `{image: x, transport: {type: stdio}, service: {labels: {"a b!": c}}}`,
		want:    `spec.service.labels: Invalid value: service.labels must have keys like team or example.com/team`,
	},
	"application protocol": {
		valid:   `{image: x, transport: {type: stdio}, service: {appProtocol: kgateway.dev/mcp}}`,
		invalid: `{image: x, transport: {type: stdio}, service: {appProtocol: "model context"}}`,
		want:    `spec.service.appProtocol: Invalid value: "model context": service.appProtocol must look like http or example.com/mcp`,
	},
	"class of load balancer": {
		valid:   `{image: x, transport: {type: stdio}, service: {type: LoadBalancer, loadBalancerClass: internal}}`,
		invalid: `{image: x, transport: {type: stdio}, service: {type: LoadBalancer, loadBalancerClass: "an internal one"}}`,
		want:    `spec.service.loadBalancerClass: Invalid value: "an internal one": service.loadBalancerClass must look like internal or example.com/internal`,
	},
	"class of no load balancer": {
		valid:   `{image: x, transport: {type: stdio}, service: {type: LoadBalancer, loadBalancerClass: example.com/internal}}`,
		invalid: `{image: x, transport: {type: stdio}, service: {loadBalancerClass: example.com/internal}}`,
		want:    `spec.service.loadBalancerClass: Forbidden: service.loadBalancerClass must be left out unless service.type is LoadBalancer`,
	},
	"external traffic of an internal Service": {
		valid:   `{image: x, transport: {type: stdio}, service: {type: NodePort, externalTrafficPolicy: Local}}`,
		invalid: `{image: x, transport: {type: stdio}, service: {type: ClusterIP, externalTrafficPolicy: Local}}`,
		want:    `spec.service.externalTrafficPolicy: Forbidden: service.externalTrafficPolicy must be left out unless service.type is NodePort or LoadBalancer`,
	},
	"memory without room for the usual lines": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {resources: {limits: {memory: 256Mi}}}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {resources: {limits: {memory: 255Mi}}}}`,
		want:    `spec.adapter.limits.line: Invalid value: adapter.limits.line defaults to 67108864 bytes, which needs adapter.resources.limits.memory of at least 256Mi: raise the memory, or lower adapter.limits.line`,
	},

	// What the schema itself catches.
	"quantity that cannot be decoded": {
		valid:   `{image: x, transport: {type: stdio}, resources: {limits: {memory: 1.5e3, cpu: 100m}}}`,
		invalid: `{image: x, transport: {type: stdio}, resources: {limits: {memory: "1e1.5"}}}`,
		want:    `spec.resources.limits.memory: Invalid value: "1e1.5": spec.resources.limits.memory in body should match '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$'`,
	},
	"unknown transport": {
		valid:   `{image: x, transport: {type: stdio}}`,
		invalid: `{image: x, transport: {type: grpc}}`,
		want:    `spec.transport.type: Unsupported value: "grpc": supported values: "stdio", "streamable-http", "sse"`,
	},
	"negative number of sessions": {
		valid:   `{image: x, transport: {type: stdio}, session: {maxPerPod: 1}}`,
		invalid: `{image: x, transport: {type: stdio}, session: {maxPerPod: -1}}`,
		want:    `spec.session.maxPerPod: Invalid value: -1: spec.session.maxPerPod in body should be greater than or equal to 1`,
	},
	"negative number of calls": {
		valid:   `{image: x, transport: {type: stdio}, adapter: {limits: {callsPerSession: 1}}}`,
		invalid: `{image: x, transport: {type: stdio}, adapter: {limits: {callsPerSession: -1}}}`,
		want:    `spec.adapter.limits.callsPerSession: Invalid value: -1: spec.adapter.limits.callsPerSession in body should be greater than or equal to 1`,
	},
	"negative replicas": {
		valid:   `{image: x, transport: {type: stdio}, replicas: 0}`,
		invalid: `{image: x, transport: {type: stdio}, replicas: -1}`,
		want:    `.spec.replicas: Invalid value: -1: should be a non-negative integer`,
	},
}

// Kubernetes adds this when the schema itself refuses an object; it is not ours.
const notCheckedFurther = "some validation rules were not checked because the object was invalid"

func TestValidationRules(t *testing.T) {
	for name, r := range allRules() {
		t.Run(name, func(t *testing.T) {
			if err := dryRun(t.Context(), mcpServer(t, "server", r.valid)); err != nil {
				t.Errorf("valid spec was refused: %v", err)
			}
			err := dryRun(t.Context(), mcpServer(t, "server", r.invalid))
			if diff := cmp.Diff(toldOf([]string{r.want}), toldOf(sentences(t, err))); diff != "" {
				t.Errorf("invalid spec (-want +got):\n%s", diff)
			}
		})
	}
}

// A memory limit is a number or a string, may be left out, and may be too small for several
// limits at once.
func TestAdapterMemory(t *testing.T) {
	const (
		usualBody = "spec.adapter.limits.body: Invalid value: adapter.limits.body defaults to 33554432 bytes, which needs adapter.resources.limits.memory of at least 128Mi: raise the memory, or lower adapter.limits.body"
		usualLine = "spec.adapter.limits.line: Invalid value: adapter.limits.line defaults to 67108864 bytes, which needs adapter.resources.limits.memory of at least 256Mi: raise the memory, or lower adapter.limits.line"
		mostBytes = "limits: {body: 1073741824, line: 1073741824}"
	)
	for adapter, want := range map[string][]string{
		"{resources: {limits: {memory: 64Mi}}}":                                           {usualBody, usualLine},
		"{resources: {limits: {memory: 200M}}}":                                           {usualLine},
		"{resources: {limits: {memory: 268435455}}}":                                      {usualLine},
		"{resources: {limits: {memory: 268435455500m}}}":                                  {usualLine},
		"{resources: {limits: {memory: 64Mi}}, limits: {line: 1024}}":                     {usualBody},
		"{resources: {limits: {memory: 64Mi}}, limits: {body: 16777216, line: 16777216}}": nil,
		"{resources: {limits: {memory: 268435456}}}":                                      nil,
		"{resources: {limits: {memory: .25Gi}}}":                                          nil,
		"{resources: {limits: {memory: 1e9}}}":                                            nil,
		"{resources: {limits: {memory: 4Gi}}, " + mostBytes + "}":                         nil,
		"{resources: {limits: {memory: 8Ei}}, " + mostBytes + "}":                         nil,
		"{resources: {limits: {memory: 0}}, " + mostBytes + "}":                           nil,
		"{resources: {limits: {memory: \"0\"}}, " + mostBytes + "}":                       nil,
		"{resources: {limits: {cpu: 1}}, " + mostBytes + "}":                              nil,
		"{resources: {requests: {memory: 32Mi}}, " + mostBytes + "}":                      nil,
		"{resources: {}, " + mostBytes + "}":                                              nil,
	} {
		t.Run(adapter, func(t *testing.T) {
			err := dryRun(t.Context(), mcpServer(t, "server", "{image: x, transport: {type: stdio}, adapter: "+adapter+"}"))
			if diff := cmp.Diff(toldOf(want), toldOf(sentences(t, err))); diff != "" {
				t.Errorf("create (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNameRules(t *testing.T) {
	const spec = `{image: x, transport: {type: stdio}}`
	longest := strings.Repeat("n", 63)
	for name, want := range map[string][]string{
		"everything":    nil,
		longest:         nil,
		longest + "n":   {nameTooLong},
		"1password":     {nameNoLabel},
		"my.server":     {nameNoLabel},
		longest + ".a1": {nameTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(toldOf(want), toldOf(sentences(t, dryRun(t.Context(), mcpServer(t, name, spec))))); diff != "" {
				t.Errorf("create (-want +got):\n%s", diff)
			}
		})
	}
}

const (
	nameTooLong = "Invalid value: metadata.name must be no longer than 63 characters, because the Service that clients connect to has the same name"
	nameNoLabel = "Invalid value: metadata.name must start with a letter and hold only lower-case letters, digits and '-', because the Service that clients connect to has the same name"
)

// Every rule of the API needs a case here.
func TestEveryRuleHasACase(t *testing.T) {
	data, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatalf("read CRD: %v", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		t.Fatalf("decode CRD: %v", err)
	}
	messages := map[string]bool{}
	collectMessages(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, messages)

	wants := []string{nameTooLong, nameNoLabel}
	for _, r := range allRules() {
		wants = append(wants, r.want)
	}
	cases := strings.Join(wants, "\n")
	for _, message := range slices.Sorted(maps.Keys(messages)) {
		if !strings.Contains(cases, message) {
			t.Errorf("no case for the rule %q", message)
		}
	}
	if len(messages) < 25 {
		t.Errorf("found %d rules in the CRD, want at least 25: the search no longer finds them", len(messages))
	}
}

// A message that is computed has literals, with verbs where values go.
var (
	literals = regexp.MustCompile(`'[^']*'`)
	verbs    = regexp.MustCompile(`%[a-z]`)
)

func collectMessages(schema *apiextensionsv1.JSONSchemaProps, into map[string]bool) {
	if schema == nil {
		return
	}
	for _, r := range schema.XValidations {
		if r.MessageExpression == "" {
			into[r.Message] = true
		}
		for _, literal := range literals.FindAllString(r.MessageExpression, -1) {
			for _, part := range verbs.Split(strings.Trim(literal, "'"), -1) {
				into[part] = true
			}
		}
	}
	for _, property := range schema.Properties {
		collectMessages(&property, into)
	}
	if schema.Items != nil {
		collectMessages(schema.Items.Schema, into)
	}
	if schema.AdditionalProperties != nil {
		collectMessages(schema.AdditionalProperties.Schema, into)
	}
}

// sentences are what the API server says is wrong, one for each cause.
func sentences(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonInvalid {
		t.Fatalf("create: got %v, want an Invalid error of the API server", err)
	}
	var all []string
	for _, cause := range status.Status().Details.Causes {
		if strings.Contains(cause.Message, notCheckedFurther) {
			continue
		}
		sentence := cause.Message
		if cause.Field != "" && cause.Field != "<nil>" {
			sentence = cause.Field + ": " + sentence
		}
		all = append(all, sentence)
	}
	return all
}

var refusedValue = regexp.MustCompile(`Invalid value: (?:(?:"(?:[^"\\]|\\.)*"|-?[0-9]+): )?`)

// toldOf leaves refused values out of sentences where the API server tells only their kinds.
func toldOf(sentences []string) []string {
	if !tellsKinds {
		return sentences
	}
	var all []string
	for _, sentence := range sentences {
		all = append(all, refusedValue.ReplaceAllString(sentence, "Invalid value: "))
	}
	return all
}

func mcpServer(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var content map[string]any
	if err := yaml.UnmarshalStrict([]byte(spec), &content); err != nil {
		t.Fatalf("decode spec: %v", err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mcp.slipway.dev/v1alpha1",
		"kind":       "MCPServer",
		"metadata":   map[string]any{"name": name, "namespace": "default"},
		"spec":       content,
	}}
}

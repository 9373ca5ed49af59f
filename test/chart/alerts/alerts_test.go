package alerts

import (
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

var promQL = parser.NewParser(parser.Options{})

// alerts reads the rule file as Prometheus does.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, problems := rulefmt.ParseFile(filepath.Join("..", "..", "..", "charts", "slipway", "files", "alerts.yaml"), false, model.UTF8Validation, promQL, slog.New(slog.DiscardHandler))
	for _, problem := range problems {
		t.Error(problem)
	}
	if groups == nil {
		t.FailNow()
	}
	found := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			found[rule.Alert] = rule
		}
	}
	return found
}

// alertTests have series, a sample a minute, and the alerts that fire at a minute, by their labels.
var alertTests = map[string]struct {
	alert  string
	series string
	minute int
	want   []string
}{
	"a manager that leads": {
		alert: "SlipwayManagerAbsent", minute: 30,
		series: manages("a", "0x30", "1x30"),
	},
	"a manager without leader election": {
		alert: "SlipwayManagerAbsent", minute: 30,
		series: `slipway_servers_template_outdated{pod="a"} 0x30`,
	},
	"no manager": {
		alert: "SlipwayManagerAbsent", minute: 30,
		series: `slipway_build_info{pod="adapter"} 1x30`,
		want:   []string{"{}"},
	},
	"a manager that has gone, too short": {
		alert: "SlipwayManagerAbsent", minute: 14,
		series: manages("a", "0x9 stale", "1x9 stale"),
	},
	"a manager that has gone": {
		alert: "SlipwayManagerAbsent", minute: 16,
		series: manages("a", "0x9 stale", "1x9 stale"),
		want:   []string{"{}"},
	},
	"a manager replaces another": {
		alert: "SlipwayManagerAbsent", minute: 25,
		series: manages("a", "0x9 stale", "1x9 stale") + "\n" + manages("b", "_x8 0x30", "_x8 0x2 1x27"),
	},
	"two that wait for a lease": {
		alert: "SlipwayManagerAbsent", minute: 10,
		series: manages("a", "0x30", "0x30") + "\n" + manages("b", "0x30", "0x30"),
		want:   []string{"{}"},
	},
	"a leader and a standby": {
		alert: "SlipwayManagerAbsent", minute: 30,
		series: manages("a", "0x30", "1x30") + "\n" + manages("b", "0x30", "0x30"),
	},
	"another program that waits for its lease": {
		alert: "SlipwayManagerAbsent", minute: 30,
		series: manages("a", "0x30", "1x30") + "\n" + `leader_election_master_status{name="other"} 0x30`,
	},

	"all servers ready or stopped": {
		alert: "SlipwayServerNotReady", minute: 30,
		series: `slipway_servers{ready="True",reason="Ready",pod="a"} 7x30` + "\n" + `slipway_servers{ready="Stopped",reason="Suspended",pod="a"} 2x30`,
	},
	"a server starts": {
		alert: "SlipwayServerNotReady", minute: 14,
		series: `slipway_servers{ready="False",reason="PodsStarting",pod="a"} 1x30`,
	},
	"a server does not get ready": {
		alert: "SlipwayServerNotReady", minute: 16,
		series: `slipway_servers{ready="False",reason="ServerExits",pod="a"} 2x30` + "\n" + `slipway_servers{ready="False",reason="ServerExits",pod="b"} 2x30`,
		want:   []string{`{ready="False", reason="ServerExits"} 2 MCPServers are not ready (ServerExits).`},
	},
	"servers are not known to be ready": {
		alert: "SlipwayServerNotReady", minute: 16,
		series: `slipway_servers{ready="Unknown",reason="Retrying",pod="a"} 1x30`,
		want:   []string{`{ready="Unknown", reason="Retrying"} 1 MCPServers are not ready (Retrying).`},
	},
	"a server recovers": {
		alert: "SlipwayServerNotReady", minute: 20,
		series: `slipway_servers{ready="False",reason="ServerExits",pod="a"} 1x13 stale`,
	},

	"a server that never crashes": {
		alert: "SlipwayServerCrashing", minute: 30,
		series: `slipway_adapter_server_crashes_total{namespace="n",mcpserver="s",pod="a"} 9x30`,
	},
	"a crash now and then": {
		alert: "SlipwayServerCrashing", minute: 60,
		series: `slipway_adapter_server_crashes_total{namespace="n",mcpserver="s",pod="a"} 0x9 1x9 2x9 3x9 4x30`,
	},
	"a burst of crashes, long ago": {
		alert: "SlipwayServerCrashing", minute: 60,
		series: `slipway_adapter_server_crashes_total{namespace="n",mcpserver="s",pod="a"} 0x9 20x60`,
	},
	"a server that crashes every minute": {
		alert: "SlipwayServerCrashing", minute: 15,
		series: `slipway_adapter_server_crashes_total{namespace="n",mcpserver="s",pod="a"} 0+1x30` + "\n" + `slipway_adapter_server_crashes_total{namespace="n",mcpserver="other",pod="b"} 0x30`,
		want:   []string{`{mcpserver="s", namespace="n"} MCPServer n/s is crashing.`},
	},
	"two pods crash by turns": {
		alert: "SlipwayServerCrashing", minute: 30,
		series: `slipway_adapter_server_crashes_total{namespace="n",mcpserver="s",pod="a"} 0+0.2x30` + "\n" + `slipway_adapter_server_crashes_total{namespace="n",mcpserver="s",pod="b"} 0+0.2x30`,
		want:   []string{`{mcpserver="s", namespace="n"} MCPServer n/s is crashing.`},
	},

	"all slots taken, and no client refused": {
		alert: "SlipwaySessionsFull", minute: 30,
		series: `slipway_adapter_sessions{namespace="n",mcpserver="s",pod="a"} 20x30` + "\n" + `slipway_adapter_refused_sessions_total{namespace="n",mcpserver="s",pod="a"} 4x30`,
	},
	"a burst of refusals": {
		alert: "SlipwaySessionsFull", minute: 21,
		series: `slipway_adapter_refused_sessions_total{namespace="n",mcpserver="s",pod="a"} 0x9 7x30`,
	},
	"refusals all the time": {
		alert: "SlipwaySessionsFull", minute: 21,
		series: `slipway_adapter_refused_sessions_total{namespace="n",mcpserver="s",pod="a"} 0x5 1+1x30`,
		want:   []string{`{mcpserver="s", namespace="n"} MCPServer n/s turns clients away.`},
	},
}

// manages are the series of a manager: the samples of a metric that it has once its cache is filled, and of its lease.
func manages(pod, metric, lease string) string {
	return fmt.Sprintf("slipway_servers_template_outdated{pod=%q} %s\n", pod, metric) +
		fmt.Sprintf("leader_election_master_status{pod=%q,name=\"slipway-manager.mcp.slipway.dev\"} %s", pod, lease)
}

// Alerts fire when they should, and not otherwise, as Prometheus evaluates them.
func TestAlerts(t *testing.T) {
	known := alerts(t)
	fired, silent := map[string]bool{}, map[string]bool{}
	for name, test := range alertTests {
		if len(test.want) > 0 {
			fired[test.alert] = true
		} else {
			silent[test.alert] = true
		}
		t.Run(name, func(t *testing.T) {
			rule, ok := known[test.alert]
			if !ok {
				t.Fatalf("no alert %s", test.alert)
			}
			load := "load 1m\n"
			for line := range strings.Lines(test.series) {
				load += "  " + line
			}
			storage := promqltest.LoadedStorage(t, load+"\n")
			engine := promqltest.NewTestEngine(t, false, 0, 100_000)
			expr, err := promQL.ParseExpr(rule.Expr)
			if err != nil {
				t.Fatal(err)
			}
			alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
				labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
			for minute := range test.minute + 1 {
				now := time.Unix(0, 0).Add(time.Duration(minute) * time.Minute)
				if _, err := alert.Eval(t.Context(), 0, now, rules.EngineQueryFunc(engine, storage), &url.URL{}, 0); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			alert.ForEachActiveAlert(func(active *rules.Alert) {
				if active.State != rules.StateFiring {
					return
				}
				own := labels.NewBuilder(active.Labels).Del("alertname", "severity").Labels()
				line := own.String()
				if own.Len() > 0 {
					line += " " + active.Annotations.Get("summary")
				}
				got = append(got, line)
			})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("what fires at minute %d (-want +got):\n%s", test.minute, diff)
			}
		})
	}
	for name := range known {
		if !fired[name] || !silent[name] {
			t.Errorf("%s: no test in which it fires, or none in which it does not", name)
		}
	}
}

// ours are the metrics that a test of the root module looks for in the code: see test/alerts.
var ours = regexp.MustCompile(`^(slipway_\w+|leader_election_master_status)$`)

func TestAlertsNameOurMetrics(t *testing.T) {
	for name, rule := range alerts(t) {
		expr, err := promQL.ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if selector, ok := node.(*parser.VectorSelector); ok {
				found = true
				if !ours.MatchString(selector.Name) {
					t.Errorf("%s: %s is no metric of Slipway", name, selector.Name)
				}
			}
			return nil
		})
		if !found {
			t.Errorf("%s names no metric", name)
		}
	}
}

// Each alert has a runbook on the page that it names.
func TestAlertsHaveRunbooks(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := alerts(t)
	if len(known) != 4 {
		t.Errorf("%d alerts: %v", len(known), slices.Sorted(maps.Keys(known)))
	}
	for name, rule := range known {
		page, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(page, "/docs/monitoring.md") || anchor != strings.ToLower(name) {
			t.Errorf("%s has the runbook %s#%s", name, page, anchor)
		}
		if !strings.Contains(string(content), "\n### "+name+"\n") {
			t.Errorf("docs/monitoring.md has no section %s", name)
		}
	}
}

// Package helm_test renders the chart of stint with helm's own engine and reads what
// comes out as Kubernetes would. It is a module apart from go.work, so that helm
// and Kubernetes are dependencies of nothing else.
package helm_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// Objects are what a chart makes; nil where it makes none.
type objects struct {
	deployment *appsv1.Deployment
	service    *corev1.Service
	account    *corev1.ServiceAccount
	rules      *corev1.ConfigMap
	tokens     *corev1.Secret
	disruption *policyv1.PodDisruptionBudget
	scaler     *autoscalingv2.HorizontalPodAutoscaler
	network    *networkingv1.NetworkPolicy
	monitor    *monitoringv1.ServiceMonitor
}

// values reads a file of testdata; "" is what the chart has.
func values(t *testing.T, file string) map[string]any {
	t.Helper()
	if file == "" {
		return map[string]any{}
	}
	v, err := chartutil.ReadValuesFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// load reads the chart, once.
var load = sync.OnceValues(func() (*chart.Chart, error) { return loader.Load("stint") })

// template does what "helm template" does, and returns the files by their names.
func template(v map[string]any) (map[string]string, error) { return templateAs("limits", "web", v) }

// templateAs is template for a release of another name.
func templateAs(name, namespace string, v map[string]any) (map[string]string, error) {
	from, err := load()
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(from, v, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(from, all)
}

// render makes the objects of a file of values.
func render(t *testing.T, file string) objects {
	t.Helper()
	files, err := template(values(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, files, file)
}

// read reads each object strictly: a field that Kubernetes does not know, or that
// comes twice, fails the test, as does a number where text stands. What says which
// values these are.
func read(t *testing.T, files map[string]string, what string) (o objects) {
	t.Helper()
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" || strings.TrimSpace(text) == "" {
			continue
		}
		for i, one := range []struct {
			kind string
			read func() error
		}{
			{"apps/v1 Deployment", func() error { return strict(text, &o.deployment) }},
			{"v1 Service", func() error { return strict(text, &o.service) }},
			{"v1 ServiceAccount", func() error { return strict(text, &o.account) }},
			{"v1 ConfigMap", func() error { return strict(text, &o.rules) }},
			{"v1 Secret", func() error { return strict(text, &o.tokens) }},
			{"policy/v1 PodDisruptionBudget", func() error { return strict(text, &o.disruption) }},
			{"autoscaling/v2 HorizontalPodAutoscaler", func() error { return strict(text, &o.scaler) }},
			{"networking.k8s.io/v1 NetworkPolicy", func() error { return strict(text, &o.network) }},
			{"monitoring.coreos.com/v1 ServiceMonitor", func() error { return strict(text, &o.monitor) }},
			{"", nil},
		} {
			var head struct{ APIVersion, Kind string }
			if err := yaml.Unmarshal([]byte(text), &head); err != nil {
				t.Fatalf("%s: %s: %v\n%s", what, name, err, text)
			}
			if i == 9 {
				t.Errorf("%s: %s %s is not looked at", name, head.APIVersion, head.Kind)
			} else if one.kind == head.APIVersion+" "+head.Kind {
				if err := one.read(); err != nil {
					t.Fatalf("%s: %s: %v\n%s", what, name, err, text)
				}
				break
			}
		}
	}
	return o
}

// strict reads as the API server does: names of fields have a case.
func strict[T any](text string, to **T) error {
	*to = new(T)
	plain, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return err
	}
	unknown, err := json.UnmarshalStrict(plain, *to)
	return errors.Join(append(unknown, err)...)
}

// made names what there is.
func (o *objects) made() string {
	names := make([]string, 0, 9)
	for name, there := range map[string]bool{
		"deployment": o.deployment != nil, "service": o.service != nil, "account": o.account != nil, "rules": o.rules != nil, "tokens": o.tokens != nil,
		"disruption": o.disruption != nil, "scaler": o.scaler != nil, "network": o.network != nil, "monitor": o.monitor != nil,
	} {
		if there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestChart renders the chart with what it has, with all that it can do, with as
// little as it can do, and looks that its objects find one another.
func TestChart(t *testing.T) {
	for _, c := range []struct{ file, made string }{
		{"", "account deployment disruption network rules service tokens"},
		{"all.yaml", "account deployment disruption monitor network rules scaler service tokens"},
		{"none.yaml", "account deployment service"},
		{"database.yaml", "account deployment disruption network service tokens"},
		{"clients.yaml", "account deployment disruption network rules scaler service tokens"},
	} {
		t.Run(c.file, func(t *testing.T) {
			o := render(t, c.file)
			if o.made() != c.made {
				t.Fatalf("made %s, want %s", o.made(), c.made)
			}
			o.join(t)
		})
	}
}

// join holds what objects say of one another to be true.
func (o *objects) join(t *testing.T) {
	pod := o.deployment.Spec.Template
	labels := pod.Labels
	selectors := map[string]map[string]string{"Deployment": o.deployment.Spec.Selector.MatchLabels, "Service": o.service.Spec.Selector}
	if o.disruption != nil {
		selectors["PodDisruptionBudget"] = o.disruption.Spec.Selector.MatchLabels
	}
	if o.network != nil {
		selectors["NetworkPolicy"] = o.network.Spec.PodSelector.MatchLabels
	}
	for kind, selector := range selectors {
		for key, value := range selector {
			if labels[key] != value || len(selector) < 2 {
				t.Errorf("%s selects %v, the pod has %v", kind, selector, labels)
			}
		}
	}
	container := pod.Spec.Containers[0]
	ports := make(map[string]bool)
	for _, p := range container.Ports {
		ports[p.Name] = true
	}
	for _, p := range o.service.Spec.Ports {
		if !ports[p.TargetPort.String()] {
			t.Errorf("the service names port %s of %v", p.TargetPort.String(), ports)
		}
	}
	if len(o.service.Spec.Ports) != len(ports) {
		t.Errorf("the service has %d ports of %d", len(o.service.Spec.Ports), len(ports))
	}
	if o.network != nil && len(o.network.Spec.Ingress[0].Ports) != len(ports) {
		t.Errorf("the network has %d ports of %d", len(o.network.Spec.Ingress[0].Ports), len(ports))
	}
	if o.scaler != nil && (o.scaler.Spec.ScaleTargetRef.Name != o.deployment.Name || o.deployment.Spec.Replicas != nil) {
		t.Errorf("the scaler scales %v, of %v replicas", o.scaler.Spec.ScaleTargetRef, o.deployment.Spec.Replicas)
	}
	if pod.Spec.ServiceAccountName != o.account.Name {
		t.Errorf("the pod's account is %s, not %s", pod.Spec.ServiceAccountName, o.account.Name)
	}
	if o.monitor != nil {
		for key, value := range o.monitor.Spec.Selector.MatchLabels {
			if o.service.Labels[key] != value {
				t.Errorf("the monitor looks for %s=%s, the service has %v", key, value, o.service.Labels)
			}
		}
		credentials := o.monitor.Spec.Endpoints[0].Authorization.Credentials
		if o.tokens != nil && (credentials.Name != o.tokens.Name || len(o.tokens.Data[credentials.Key]) < 16) {
			t.Errorf("the monitor shows %v", credentials)
		}
	}
	o.probes(t, &container)
	o.mounts(t, &pod.Spec)
}

// probes asks that all three are there, and of the same kind.
func (o *objects) probes(t *testing.T, c *corev1.Container) {
	for name, p := range map[string]*corev1.Probe{"livez": c.LivenessProbe, "readyz": c.ReadinessProbe, "startup": c.StartupProbe} {
		if name == "startup" {
			name = "livez"
		}
		switch {
		case p == nil:
			t.Errorf("no probe of %s", name)
		case slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--tls-client-ca=") }):
			if p.Exec == nil || p.Exec.Command[2] != "http://127.0.0.1:9090/"+name {
				t.Errorf("%s: %v", name, p.ProbeHandler)
			}
		case p.HTTPGet == nil || p.HTTPGet.Path != "/"+name || p.HTTPGet.Port.String() != "http":
			t.Errorf("%s: %v", name, p.ProbeHandler)
		}
	}
	s := c.SecurityContext
	if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || s.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%+v", s)
	}
}

// mounts looks that each volume is mounted, as a directory, and holds what the chart
// makes.
func (o *objects) mounts(t *testing.T, pod *corev1.PodSpec) {
	volumes := make(map[string]corev1.Volume)
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if _, ok := volumes[m.Name]; !ok || m.SubPath != "" {
			t.Errorf("%+v is mounted of %v", m, slices.Collect(maps.Keys(volumes)))
		}
	}
	if len(volumes) != len(pod.Containers[0].VolumeMounts) {
		t.Errorf("%d mounts of %d volumes", len(pod.Containers[0].VolumeMounts), len(volumes))
	}
	if o.rules != nil && volumes["rules"].ConfigMap.Name != o.rules.Name {
		t.Errorf("the rules are %s, the pod has %s", o.rules.Name, volumes["rules"].ConfigMap.Name)
	}
	if o.tokens != nil && volumes["tokens"].Secret.SecretName != o.tokens.Name {
		t.Errorf("the tokens are %s, the pod has %s", o.tokens.Name, volumes["tokens"].Secret.SecretName)
	}
}

// TestRules changes the rules: pods are replaced where that is asked for, and only
// there.
func TestRules(t *testing.T) {
	sums := make(map[string]bool)
	for _, c := range []struct {
		change, text string
		sum          bool
	}{{"reload", "rules: []", false}, {"restart", "rules: []", true}, {"restart", "rules: [] # new", true}} {
		files, err := template(map[string]any{"rules": map[string]any{"text": c.text, "onChange": c.change}})
		if err != nil {
			t.Fatal(err)
		}
		var d *appsv1.Deployment
		if err := strict(files["stint/templates/deployment.yaml"], &d); err != nil {
			t.Fatal(err)
		}
		sum := d.Spec.Template.Annotations["checksum/rules"]
		if (sum != "") != c.sum || sum != "" && sums[sum] {
			t.Errorf("%s of %q: checksum %q", c.change, c.text, sum)
		}
		sums[sum] = true
	}
}

// TestDatabase has rules in a database: no file is named beside it, which the program
// refuses, and the copy for when it is gone can be written.
func TestDatabase(t *testing.T) {
	pod := render(t, "database.yaml").deployment.Spec.Template.Spec
	one := pod.Containers[0]
	if !strings.HasPrefix(one.Args[1], "--") {
		t.Errorf("serve %s", one.Args[1])
	}
	at := slices.IndexFunc(one.Env, func(v corev1.EnvVar) bool { return v.Name == "STINT_RULES" })
	if at < 0 || one.Env[at].ValueFrom.SecretKeyRef.Name != "edge-rules" || one.Env[at].ValueFrom.SecretKeyRef.Key != "url" {
		t.Errorf("%+v", one.Env)
	}
	writable(t, pod, "STINT_RULES_COPY", "")
}

// TestScaler scales by the processor and by denials.
func TestScaler(t *testing.T) {
	all := render(t, "all.yaml").scaler.Spec.Metrics
	if len(all) != 2 || *all[0].Resource.Target.AverageUtilization != 60 || all[1].External.Metric.Name != "stint_denials" ||
		all[1].External.Metric.Selector.MatchLabels["rule"] != "login" || all[1].External.Target.AverageValue.String() != "50" {
		t.Errorf("%+v", all)
	}
	if one := render(t, "clients.yaml").scaler.Spec.Metrics; len(one) != 1 || one[0].External == nil {
		t.Errorf("%+v", one)
	}
}

// TestRefused gives what the chart does not take, one at a time.
func TestRefused(t *testing.T) {
	text, err := os.ReadFile("testdata/refused.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Values map[string]any
		Says   string
	}
	if err := yaml.UnmarshalStrict(text, &cases); err != nil || len(cases) < 20 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		if _, err := template(c.Values); err == nil || !strings.Contains(err.Error(), c.Says) {
			t.Errorf("%v: %v, want %q", c.Values, err, c.Says)
		}
	}
}

// TestLint runs what "helm lint --strict" does.
func TestLint(t *testing.T) {
	for _, file := range []string{"", "all.yaml", "none.yaml", "clients.yaml"} {
		for _, m := range lint.All("stint", values(t, file), "web", true).Messages {
			if !strings.Contains(m.Err.Error(), "icon is recommended") {
				t.Errorf("%s: %v", file, m)
			}
		}
	}
}

// TestDocument reads the objects for Kubernetes in docs/configs, and looks in
// docs/KUBERNETES.md for each value of the chart.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/KUBERNETES.md")
	if err != nil {
		t.Fatal(err)
	}
	var objects []string
	for _, name := range []string{"kubernetes-sidecar.yaml", "kubernetes-ingress-nginx.yaml"} {
		file, err := os.ReadFile("../../docs/configs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, strings.Split(string(file), "---\n")...)
	}
	n := 0
	for _, block := range objects {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(block), &head); err != nil {
			t.Fatal(err)
		}
		read := map[string]func() error{
			"Deployment": func() error { return strict(block, new(*appsv1.Deployment)) },
			"Service":    func() error { return strict(block, new(*corev1.Service)) },
			"ConfigMap":  func() error { return strict(block, new(*corev1.ConfigMap)) },
			"Ingress":    func() error { return strict(block, new(*networkingv1.Ingress)) },
			"HTTPRoute":  func() error { return strict(block, new(*gatewayv1.HTTPRoute)) },
		}[head.Kind]
		if read == nil {
			t.Errorf("a %s is not looked at", head.Kind)
		} else if err := read(); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
		n++
	}
	if n != 6 {
		t.Errorf("%d objects", n)
	}
	given, err := chartutil.ReadValuesFile("stint/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name := range given {
		if !strings.Contains(string(text), "`"+name+"`") && !strings.Contains(string(text), "`"+name+".") {
			t.Errorf("the page does not name %s", name)
		}
	}
}

// listens are the flags that say where to listen: a test takes free ports.
var listens = regexp.MustCompile(`^(--(?:http|grpc|resp|admin)=).*`)

// writable returns a variable of the container that names a file, with dir for the
// directory, which must be a volume of the pod's own that can be written.
func writable(t *testing.T, pod corev1.PodSpec, name, dir string) string {
	t.Helper()
	one := pod.Containers[0]
	at := slices.IndexFunc(one.Env, func(v corev1.EnvVar) bool { return v.Name == name })
	if at < 0 {
		t.Fatalf("%s is not set: by itself it is below a directory that cannot be written", name)
	}
	for _, mount := range one.VolumeMounts {
		volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name && v.EmptyDir != nil })
		if file, below := strings.CutPrefix(one.Env[at].Value, mount.MountPath+"/"); below && volume >= 0 && !mount.ReadOnly {
			return name + "=" + dir + "/" + file
		}
	}
	t.Errorf("%s is %s, which cannot be written", name, one.Env[at].Value)
	return name + "=none"
}

// TestProgram gives what pods are started with to the program itself: its doctor
// reads the same flags and files, and serves nothing.
func TestProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "stint")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/stint")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range []string{"", "all.yaml"} {
		o := render(t, file)
		dir := t.TempDir()
		put := func(name string, data []byte) {
			t.Helper()
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o440); err != nil {
				t.Fatal(err)
			}
		}
		put("rules/stint.yaml", []byte(o.rules.Data["stint.yaml"]))
		for name, data := range o.tokens.Data {
			put("tokens/"+name, data)
		}
		put("seal/secret", bytes.Repeat([]byte("s"), 32))
		args := []string{"doctor"}
		for _, a := range o.deployment.Spec.Template.Spec.Containers[0].Args[1:] {
			if !strings.HasPrefix(a, "--tls-") { // its files are none of the chart's
				args = append(args, listens.ReplaceAllString(strings.Replace(a, "/etc/stint", dir, 1), "${1}127.0.0.1:0"))
			}
		}
		run := exec.Command(program, args...)
		run.Env = append(os.Environ(), writable(t, o.deployment.Spec.Template.Spec, "STINT_STATE", dir))
		out, err := run.CombinedOutput()
		page := strings.Join(strings.Fields(string(out)), " ") // lines are broken at blanks
		if err != nil || !strings.Contains(page, "1 rule") || !strings.Contains(page, "ok state what operators do is kept in "+dir) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

package plinthtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"plinth/plinthtest"
)

var (
	full = flag.Bool("full", false, "run the controller a hundred times")
	year = flag.Bool("year", false, "run the controller for a year, twice")
)

// client-go slows down errors that follow each other, by the time of the last one: outside of a bubble, or in the one
// before, that was years later, and it would sleep as long.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }

// configOf is how every client of client-go reaches a plane.
func configOf(p *plinthtest.Plane, user ...plinthtest.User) *rest.Config {
	return &rest.Config{Host: p.Host(), Transport: p.Transport(user...), QPS: -1, UserAgent: "cron-controller/1"}
}

// scheduler is a controller of CronJobs, as the book of kubebuilder has one: at each time of the schedule it creates a
// Job, of which it keeps the last three, and it sleeps until the next time.
type scheduler struct {
	client.Client
	// live reads from the server: two informers have no order, so a list from the cache would have the newest Job or not.
	live client.Reader
	// bug is what is wrong with it: "" for nothing.
	bug string
}

const keptJobs = 3

// Reconcile implements reconcile.Reconciler.
func (s *scheduler) Reconcile(ctx context.Context, rq ctrl.Request) (ctrl.Result, error) {
	var job batchv1.CronJob
	if err := s.Get(ctx, rq.NamespacedName, &job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	schedule, err := cron.ParseStandard(job.Spec.Schedule)
	if err != nil {
		return ctrl.Result{}, nil // it will not get better
	}
	var jobs batchv1.JobList
	err = s.live.List(ctx, &jobs, client.InNamespace(rq.Namespace), client.MatchingLabels{"cron": rq.Name})
	if err != nil {
		return ctrl.Result{}, err
	}
	slices.SortFunc(jobs.Items, func(a, b batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	for len(jobs.Items) > keptJobs {
		if err := s.Delete(ctx, &jobs.Items[0], client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil &&
			!apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
		jobs.Items = jobs.Items[1:]
	}
	now := time.Now()
	last := job.CreationTimestamp.Time
	if job.Status.LastScheduleTime != nil {
		last = job.Status.LastScheduleTime.Time
	}
	due := time.Time{}
	for at := schedule.Next(last); !at.After(now); at = schedule.Next(at) {
		due = at
	}
	if !due.IsZero() {
		switch err := s.create(ctx, &job, due); {
		case err != nil && s.bug == "swallows errors":
			return ctrl.Result{}, nil
		case err != nil:
			return ctrl.Result{}, err
		}
		job.Status.LastScheduleTime = &metav1.Time{Time: due}
		if err := s.Status().Update(ctx, &job); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: schedule.Next(now).Sub(now)}, nil
}

// create creates the Job of a time. Its name is that time, so that it exists once.
func (s *scheduler) create(ctx context.Context, of *batchv1.CronJob, at time.Time) error {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: fmt.Sprintf("%s-%d", of.Name, at.Unix()),
			Labels: map[string]string{"cron": of.Name}},
		Spec: of.Spec.JobTemplate.Spec,
	}
	if s.bug == "not idempotent" {
		job.GenerateName, job.Name = job.Name+"-", ""
	}
	if err := ctrl.SetControllerReference(of, job, s.Scheme()); err != nil {
		return err
	}
	if err := s.Create(ctx, job); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

var never = 100 * 365 * 24 * time.Hour

// manage runs a manager with the controller until ctx ends.
func manage(ctx context.Context, c *rest.Config, bug string) error {
	log := logr.Discard()
	m, err := ctrl.NewManager(c, ctrl.Options{
		Scheme: scheme.Scheme, Logger: log, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
		Cache:      cache.Options{SyncPeriod: new(never)}, // by default informers synchronize at a random time
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(m).For(&batchv1.CronJob{}).Complete(&scheduler{m.GetClient(), m.GetAPIReader(), bug})
	if err != nil {
		return err
	}
	return m.Start(ctx)
}

const cronJob = `
apiVersion: batch/v1
kind: CronJob
metadata: {name: backup, namespace: default}
spec:
  schedule: "0 * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: c, image: i}]
`

// A manager of controller-runtime in virtual time: every hour a Job, for a week, or for a year. The requests of its
// controller are the same in each run.
//
// SPEC: BEY-7
func TestYear(t *testing.T) {
	days, runs := 7, 3
	switch {
	case *full:
		days, runs = 7, 100
	case *year:
		days, runs = 365, 2
	}
	first := ""
	for n := range runs {
		began := time.Now()
		log := ""
		plinthtest.Bubble(t, func(t *testing.T, p *plinthtest.Plane) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- manage(ctx, configOf(p), "") }()
			time.Sleep(time.Duration(days)*24*time.Hour + time.Minute)
			if err := p.Settle(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			log = withoutStart(p.Requests().String())
			if made := len(p.Requests().On("jobs").Verb("create")); made != 24*days {
				t.Errorf("%d Jobs in %d days", made, days)
			}
			p.NoFights(t)
		}, plinthtest.Objects([]byte(cronJob)))
		t.Logf("%d days in %s, %d requests", days, time.Since(began), strings.Count(log, "\n"))
		if first == "" {
			first = log
		} else if log != first {
			t.Fatalf("run %d has other requests than the first: %s", n+1, difference(first, log))
		}
	}
}

// withoutStart takes the times of the first second out of a log, and their order: controller-runtime looks ten times a
// second whether an informer has its first list, and which of the two comes first at one instant is a matter of chance.
func withoutStart(log string) string {
	lines := strings.SplitAfter(log, "\n")
	began, _, _ := strings.Cut(lines[0], ".")
	n := 0
	for ; n < len(lines) && strings.HasPrefix(lines[n], began); n++ {
		_, lines[n], _ = strings.Cut(strings.TrimLeft(lines[n], " "), " ")
	}
	slices.Sort(lines[:n])
	return strings.Join(lines, "")
}

// difference is the first lines in which two texts differ.
func difference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return fmt.Sprintf("line %d\n%s\n%s", i+1, as[i], bs[i])
		}
	}
	return fmt.Sprintf("%d and %d lines", len(as), len(bs))
}

// Explore finds what is wrong with a controller of controller-runtime, and nothing in one that is right.
//
// SPEC: BEY-7
func TestExploreManager(t *testing.T) {
	for bug, faulty := range map[string]bool{"": false, "not idempotent": true, "swallows errors": true} {
		found := plinthtest.Find(t, func(ctx context.Context, p *plinthtest.Plane) {
			if err := manage(ctx, configOf(p), bug); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}, func(p *plinthtest.Plane) error {
			jobs := map[string]int{}
			c, err := client.New(&rest.Config{Host: p.Host(), Transport: p.Driver()}, client.Options{Scheme: scheme.Scheme})
			if err != nil {
				return err
			}
			var list batchv1.JobList
			if err := c.List(context.Background(), &list, client.InNamespace("default")); err != nil {
				return err
			}
			for _, job := range list.Items {
				jobs[job.Name[:len("backup-946688400")]]++
			}
			for at, n := range jobs {
				if n > 1 {
					return fmt.Errorf("%d Jobs for %s", n, at)
				}
			}
			var cronJob batchv1.CronJob
			if err := c.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "backup"}, &cronJob); err != nil {
				return err
			}
			if cronJob.Status.LastScheduleTime == nil {
				return errors.New("nothing was scheduled")
			}
			if len(jobs) == 0 || time.Since(cronJob.Status.LastScheduleTime.Time) > 2*time.Hour {
				return fmt.Errorf("the last Job of %d is from %s", len(jobs), cronJob.Status.LastScheduleTime)
			}
			return nil
		}, plinthtest.Objects([]byte(cronJob)), plinthtest.Rest(150*time.Minute))
		if len(found) > 0 != faulty {
			t.Errorf("%q: %d findings: %+v", bug, len(found), found)
		}
	}
}

// A thousand control planes at once, each with a client, and in the end nothing of them is left.
func TestThousand(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("planes", func(t *testing.T) {
		planes := 1000
		if testing.Short() {
			planes = 100
		}
		all := make([]client.Client, planes)
		for i := range all {
			p := plinthtest.New(t)
			c, err := client.New(configOf(p), client.Options{Scheme: scheme.Scheme})
			if err != nil {
				t.Fatal(err)
			}
			all[i] = c
		}
		for i, c := range all {
			err := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"},
				Data: map[string]string{"n": fmt.Sprint(i)}})
			if err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range all {
			var m corev1.ConfigMap
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, &m); err != nil ||
				m.Data["n"] != fmt.Sprint(i) {
				t.Fatalf("plane %d has %v, %v", i, m.Data, err)
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		t.Logf("%d planes: %d kB of heap each, %d goroutines", planes, m.HeapAlloc/uint64(planes)/1024,
			runtime.NumGoroutine())
	})
	for range 100 { // a goroutine that has returned may still be counted for a moment
		if runtime.NumGoroutine() <= before+5 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if now := runtime.NumGoroutine(); now > before+5 {
		t.Errorf("%d goroutines before, %d after", before, now)
	}
}

package admission

import (
	"os"
	"testing"

	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

func TestMain(m *testing.M) {
	options.RegisterAllAdmissionPlugins(register)
	lifecycle.Register(register)
	klog.LogToStderr(false)
	os.Exit(m.Run())
}

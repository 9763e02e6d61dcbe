package etcdform

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"plinth/internal/gotypes"
	"plinth/schema"
)

// apiServiceVersion is the version in which APIServices are stored.
const apiServiceVersion = "apiregistration.k8s.io/v1"

// apiService has the fields of an APIService in their order, for a server that does not serve them (--runtime-config):
// other servers on the same etcd write one for each group version.
type apiService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Spec              apiServiceSpec   `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
	Status            apiServiceStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

type apiServiceSpec struct {
	Service               *serviceReference `json:"service,omitempty" protobuf:"bytes,1,opt,name=service"`
	Group                 string            `json:"group,omitempty" protobuf:"bytes,2,opt,name=group"`
	Version               string            `json:"version,omitempty" protobuf:"bytes,3,opt,name=version"`
	InsecureSkipTLSVerify bool              `json:"insecureSkipTLSVerify,omitempty" protobuf:"varint,4,opt,name=insecureSkipTLSVerify"`
	CABundle              []byte            `json:"caBundle,omitempty" protobuf:"bytes,5,opt,name=caBundle"`
	GroupPriorityMinimum  int32             `json:"groupPriorityMinimum" protobuf:"varint,7,opt,name=groupPriorityMinimum"`
	VersionPriority       int32             `json:"versionPriority" protobuf:"varint,8,opt,name=versionPriority"`
}

type serviceReference struct {
	Namespace string `json:"namespace,omitempty" protobuf:"bytes,1,opt,name=namespace"`
	Name      string `json:"name,omitempty" protobuf:"bytes,2,opt,name=name"`
	Port      *int32 `json:"port,omitempty" protobuf:"varint,3,opt,name=port"`
}

type apiServiceStatus struct {
	Conditions []apiServiceCondition `json:"conditions,omitempty" protobuf:"bytes,1,rep,name=conditions"`
}

type apiServiceCondition struct {
	Type               string      `json:"type" protobuf:"bytes,1,opt,name=type"`
	Status             string      `json:"status" protobuf:"bytes,2,opt,name=status"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty" protobuf:"bytes,3,opt,name=lastTransitionTime"`
	Reason             string      `json:"reason,omitempty" protobuf:"bytes,4,opt,name=reason"`
	Message            string      `json:"message,omitempty" protobuf:"bytes,5,opt,name=message"`
}

func apiServiceType() *schema.Type { return gotypes.Of[apiService]() }

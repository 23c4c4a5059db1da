import numpy as np
from weft.base import dtypes
from weft.compiler.target import llvm
from weft.compiler.target.llvm import *
class Lane:
    def __init__(self, dtype, parts): self.dtype, self.parts = dtype, tuple(parts)
    @property
    def width(self): return self.parts[0].type.count
    def with_parts(self, parts): return Lane(self.dtype, parts)
    def wide_integer(self, f):
        v=self.parts[0]; t=llvm.vector(i64, v.type.count)
        return f.sext(v,t) if dtypes.kind(self.dtype)=="i" else f.zext(v,t)
def reg(dtype):
    k=dtypes.kind(dtype)
    if k=="b": return i1
    if k in "iu": return integer(dtype.itemsize*8)
    return {2:half,4:float_,8:double}[dtype.itemsize if k=="f" else dtype.itemsize//2]
class Lanes:
    def __init__(self,f,width): self.f=f
    @staticmethod
    def storage(dtype):
        k=dtypes.kind(dtype)
        return (i8,1) if k=="b" else (reg(dtype), 2 if k=="c" else 1)
    def constant(self,number,dtype):
        if dtypes.kind(dtype)=="c": return Lane(dtype,[constant(float(number.real),reg(dtype)),constant(float(number.imag),reg(dtype))])
        return Lane(dtype,[constant(number.item(),reg(dtype))])
    def integer(self,v,dtype): return Lane(dtype,[v])
    def loaded(self,parts,dtype):
        if dtypes.kind(dtype)=="b": return Lane(dtype,[self.f.icmp("ne",parts[0],zero(parts[0].type))])
        return Lane(dtype,parts)
    def stored(self,lane):
        if dtypes.kind(lane.dtype)=="b": return [self.f.zext(lane.parts[0],vector(i8,lane.width))]
        return list(lane.parts)
    def apply(self,op,operands,params):
        a=operands[0]; fl=dtypes.kind(a.dtype)=="f"; p=[x.parts[0] for x in operands]
        f=self.f
        if dtypes.kind(a.dtype)=="c" and op in("add","sub"):
            return Lane(a.dtype,[getattr(f,"f"+op)(x,y) for x,y in zip(operands[0].parts,operands[1].parts)])
        if op in ("add","sub","mul"): return Lane(a.dtype,[getattr(f,("f" if fl else "")+op)(*p)])
        if op=="div": return Lane(a.dtype,[f.fdiv(*p)])
        if op=="max": return Lane(a.dtype,[f.maximum(*p) if fl else (f.smax if dtypes.kind(a.dtype)=="i" else f.umax)(*p)])
        if op in ("and","or"): return Lane(a.dtype,[getattr(f,op+"_")(*p)])
        if op in ("lt","ge","gt","le"):
            return Lane(dtypes.bool_,[f.fcmp("o"+op,*p) if fl else f.icmp(("s" if dtypes.kind(a.dtype)=="i" else "u")+op,*p)])
        if op=="clamp": return Lane(a.dtype,[f.smin(f.smax(p[0],p[1]),p[2])])
        k=dtypes.kind(a.dtype)
        if op=="min": return Lane(a.dtype,[f.minimum(*p) if fl else (f.smin if k=="i" else f.umin)(*p)])
        if op=="xor": return Lane(a.dtype,[f.xor(*p)])
        if op=="not": return Lane(a.dtype,[f.not_(*p)])
        if op=="select_n": return Lane(operands[1].dtype,[f.select(p[0],p[2],p[1])])
        if op in ("eq","ne"): return Lane(dtypes.bool_,[f.fcmp("oeq" if op=="eq" else "une",*p) if fl else f.icmp(op,*p)])
        if op=="convert_element_type":
            d=params["new_dtype"]; kd=dtypes.kind(d); t=vector(reg(d),a.width)
            if d==a.dtype: return a
            if kd=="b": return Lane(d,[f.fcmp("une",p[0],zero(p[0].type)) if fl else f.icmp("ne",p[0],zero(p[0].type))])
            if kd=="f":
                if fl: v=f.fpext(p[0],t) if t.bits>p[0].type.bits else f.fptrunc(p[0],t)
                else: v=(f.sitofp if k=="i" else f.uitofp)(p[0],t)
                return Lane(d,[v])
            if t.bits<p[0].type.bits: v=f.trunc(p[0],t)
            elif t.bits>p[0].type.bits: v=(f.sext if k=="i" else f.zext)(p[0],t)
            else: v=p[0]
            return Lane(d,[v])
        raise KeyError(op)

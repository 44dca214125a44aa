; Labels: core/policy/src/label.rs and categories.rs. A class is a level of 8 bits and a bit for each of 1,024 categories; a label is two of
; them. How many words of categories the code keeps is not in it: words that it does not keep are 0.
(set-logic QF_BV)
(define-sort Set () (_ BitVec 1024))
(define-sort Class () (_ BitVec 1032))
(define-sort Label () (_ BitVec 2064))
(define-fun none () Set (_ bv0 1024))
(define-fun level ((c Class)) (_ BitVec 8) ((_ extract 1031 1024) c))
(define-fun categories ((c Class)) Set ((_ extract 1023 0) c))
(define-fun class ((level (_ BitVec 8)) (of Set)) Class (concat level of))
(define-fun confidentiality ((l Label)) Class ((_ extract 2063 1032) l))
(define-fun integrity ((l Label)) Class ((_ extract 1031 0) l))
(define-fun label ((c Class) (i Class)) Label (concat c i))
; CategorySet.
(define-fun is-superset ((a Set) (b Set)) Bool (= (bvand b (bvnot a)) none))
(define-fun union ((a Set) (b Set)) Set (bvor a b))
(define-fun intersection ((a Set) (b Set)) Set (bvand a b))
(define-fun difference ((a Set) (b Set)) Set (bvand a (bvnot b)))
(define-fun has ((a Set) (n (_ BitVec 16))) Bool
  (and (bvult n #x0400) (= ((_ extract 0 0) (bvlshr a ((_ zero_extend 1008) n))) #b1)))
(define-fun with ((a Set) (n (_ BitVec 16))) Set
  (ite (bvuge n #x0400) a (bvor a (bvshl (_ bv1 1024) ((_ zero_extend 1008) n)))))
; Class.
(define-fun class-dominates ((a Class) (b Class)) Bool
  (and (bvuge (level a) (level b)) (is-superset (categories a) (categories b))))
(define-fun class-join ((a Class) (b Class)) Class
  (class (ite (bvuge (level b) (level a)) (level b) (level a)) (union (categories a) (categories b))))
(define-fun class-meet ((a Class) (b Class)) Class
  (class (ite (bvule (level a) (level b)) (level a) (level b)) (intersection (categories a) (categories b))))
; Label.
(define-fun dominates ((a Label) (b Label)) Bool
  (and (class-dominates (confidentiality a) (confidentiality b)) (class-dominates (integrity b) (integrity a))))
(define-fun join ((a Label) (b Label)) Label
  (label (class-join (confidentiality a) (confidentiality b)) (class-meet (integrity a) (integrity b))))
(define-fun meet ((a Label) (b Label)) Label
  (label (class-meet (confidentiality a) (confidentiality b)) (class-join (integrity a) (integrity b))))
(define-fun flows ((from Label) (to Label)) Bool (dominates to from))
; Range, by its low and its high label.
(define-fun is-range ((low Label) (high Label)) Bool (dominates high low))
(define-fun contains ((low Label) (high Label) (l Label)) Bool (and (dominates l low) (dominates high l)))
(define-fun includes ((low Label) (high Label) (other-low Label) (other-high Label)) Bool
  (and (contains low high other-low) (contains low high other-high)))
(define-fun common-low ((low Label) (other-low Label)) Label (join low other-low))
(define-fun common-high ((high Label) (other-high Label)) Label (meet high other-high))
(define-fun around-low ((a Label) (b Label)) Label (meet a b))
(define-fun around-high ((a Label) (b Label)) Label (join a b))

(declare-const a Label)
(declare-const b Label)
(declare-const c Label)
(declare-const low Label)
(declare-const high Label)
(declare-const low-b Label)
(declare-const high-b Label)
(declare-const p Set)
(declare-const q Set)
(declare-const n (_ BitVec 16))
(declare-const m (_ BitVec 16))

;; property: a set has what was put in and nothing else, no number from 1,024 on, and its parts are what sets' are
;; broken by: (ite (bvuge n #x0400) a (bvor ~> (ite (bvuge n #x0400) a (bvxor
;; broken by: (and (bvult n #x0400) (= ((_ extract 0 0) ~> (and true (= ((_ extract 1 1)
;; broken by: (bvand a (bvnot b)) ~> (bvxor a b)
(assert (not (and (= (has (with p n) m) (or (has p m) (and (= n m) (bvult n #x0400))))
  (=> (has p m) (bvult m #x0400))
  (= (has (union p q) m) (or (has p m) (has q m)))
  (= (has (intersection p q) m) (and (has p m) (has q m)))
  (= (has (difference p q) m) (and (has p m) (not (has q m)))))))

;; property: a set that is a superset lacks nothing of the other
;; broken by: (= (bvand b (bvnot a)) none) ~> (= (bvand ((_ zero_extend 64) ((_ extract 959 0) b)) (bvnot a)) none)
(assert (and (is-superset p q) (has q m) (not (has p m))))

;; property: every label dominates itself, and no two dominate each other
;; broken by: (bvuge (level a) (level b)) ~> (bvugt (level a) (level b))
;; broken by: (class-dominates (integrity b) (integrity a)) ~> true
(assert (not (and (dominates a a)
  (=> (and (dominates a b) (dominates b a)) (= a b)))))

;; property: what may flow on from where it may flow may flow there at once
;; broken by: (bvuge (level a) (level b)) ~> (bvsge (bvsub (level a) (level b)) #x00)
(assert (and (dominates a b) (dominates b c) (not (dominates a c))))

;; property: information flows upwards in confidentiality and downwards in integrity, and no way else
;; broken by: (class-dominates (integrity b) (integrity a)) ~> (class-dominates (integrity a) (integrity b))
;; broken by: (dominates to from)) ~> (dominates from to))
(assert (flows a b))
(assert (not (and (bvule (level (confidentiality a)) (level (confidentiality b))) (bvule (level (integrity b)) (level (integrity a)))
  (=> (has (categories (confidentiality a)) m) (has (categories (confidentiality b)) m))
  (=> (has (categories (integrity b)) m) (has (categories (integrity a)) m)))))

;; property: the join is the least label to which both flow
;; broken by: (ite (bvuge (level b) (level a)) (level b) (level a)) ~> (level a)
;; broken by: (class-meet (integrity a) (integrity b)) ~> (class-join (integrity a) (integrity b))
;; broken by: (define-fun union ((a Set) (b Set)) Set (bvor a b)) ~> (define-fun union ((a Set) (b Set)) Set (bvxor a b))
(assert (not (and (dominates (join a b) a) (dominates (join a b) b)
  (=> (and (dominates c a) (dominates c b)) (dominates c (join a b))))))

;; property: the meet is the greatest label that flows to both
;; broken by: (ite (bvule (level a) (level b)) (level a) (level b)) ~> (level b)
;; broken by: (class-join (integrity a) (integrity b)) ~> (integrity a)
;; broken by: (define-fun intersection ((a Set) (b Set)) Set (bvand a b)) ~> (define-fun intersection ((a Set) (b Set)) Set a)
(assert (not (and (dominates a (meet a b)) (dominates b (meet a b))
  (=> (and (dominates a c) (dominates b c)) (dominates (meet a b) c)))))

;; property: what two ranges have in common is in both
;; broken by: Label (join low other-low)) ~> Label low)
;; broken by: Label (meet high other-high)) ~> Label high)
(assert (and (is-range low high) (is-range low-b high-b)))
(assert (and (is-range (common-low low low-b) (common-high high high-b))
  (contains (common-low low low-b) (common-high high high-b) c)))
(assert (not (and (contains low high c) (contains low-b high-b c))))

;; property: and what is in both they have in common
;; broken by: Label (meet high other-high)) ~> Label (label (class #x00 none) (integrity (meet high other-high))))
;; broken by: Label (join low other-low)) ~> Label (label (class #xff (categories (confidentiality (join low other-low)))) (integrity (join low other-low))))
(assert (and (contains low high c) (contains low-b high-b c)))
(assert (not (and (is-range (common-low low low-b) (common-high high high-b))
  (contains (common-low low low-b) (common-high high high-b) c))))

;; property: a range that includes another contains all that it contains, and both its ends
;; broken by: (and (contains low high other-low) (contains low high other-high)) ~> (contains low high other-low)
;; broken by: (and (contains low high other-low) (contains low high other-high)) ~> (contains low high other-high)
(assert (and (is-range low high) (is-range low-b high-b) (includes low high low-b high-b)))
(assert (and (contains low-b high-b c) (not (contains low high c))))

;; property: a range that contains anything is one
;; broken by: (define-fun is-range ((low Label) (high Label)) Bool (dominates high low)) ~> (define-fun is-range ((low Label) (high Label)) Bool (dominates low high))
;; broken by: (and (dominates l low) (dominates high l)) ~> (dominates high l)
(assert (and (contains low high c) (not (is-range low high))))

;; property: the range around two labels is one and contains both
;; broken by: (define-fun around-low ((a Label) (b Label)) Label (meet a b)) ~> (define-fun around-low ((a Label) (b Label)) Label a)
;; broken by: (define-fun around-high ((a Label) (b Label)) Label (join a b)) ~> (define-fun around-high ((a Label) (b Label)) Label b)
(assert (not (and (is-range (around-low a b) (around-high a b))
  (contains (around-low a b) (around-high a b) a) (contains (around-low a b) (around-high a b) b))))

;; property: and every range that contains both includes it
;; broken by: Label (meet a b)) ~> Label (meet (meet a b) (label (class #x00 none) (integrity a))))
(assert (and (contains low high a) (contains low high b)))
(assert (not (includes low high (around-low a b) (around-high a b))))

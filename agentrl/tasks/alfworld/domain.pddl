; The ALFRED household domain as ALFWorld plays it: the live actions only.
; examineObject asks for a held object: in the original its other branch names a type "location,"
; (with the comma) that no object has, so it never applies.
(define (domain alfred)
  (:requirements :adl :action-costs :typing)
  (:types agent location receptacle object rtype otype)
  (:predicates
    (atLocation ?a - agent ?l - location)
    (receptacleAtLocation ?r - receptacle ?l - location)
    (objectAtLocation ?o - object ?l - location)
    (receptacleType ?r - receptacle ?t - rtype)
    (objectType ?o - object ?t - otype)
    (canContain ?rt - rtype ?ot - otype)
    (inReceptacle ?o - object ?r - receptacle)
    (wasInReceptacle ?o - object ?r - receptacle)
    (isReceptacleObject ?o - object)
    (inReceptacleObject ?inner - object ?outer - object)
    (openable ?r - receptacle)
    (opened ?r - receptacle)
    (holds ?a - agent ?o - object)
    (holdsAny ?a - agent)
    (checked ?x - object)
    (pickupable ?o - object)
    (cleanable ?o - object)
    (isClean ?o - object)
    (heatable ?o - object)
    (isHot ?o - object)
    (coolable ?o - object)
    (isCool ?o - object)
    (toggleable ?o - object)
    (isOn ?o - object)
    (isToggled ?o - object)
    (sliceable ?o - object)
    (isSliced ?o - object))
  (:functions (total-cost) - number)

  (:action look
    :parameters (?a - agent ?l - location)
    :precondition (atLocation ?a ?l)
    :effect (checked ?l))

  (:action inventory
    :parameters (?a - agent)
    :precondition ()
    :effect (checked ?a))

  (:action examineReceptacle
    :parameters (?a - agent ?r - receptacle)
    :precondition (exists (?l - location)
      (and (atLocation ?a ?l) (receptacleAtLocation ?r ?l)))
    :effect (checked ?r))

  (:action examineObject
    :parameters (?a - agent ?o - object)
    :precondition (holds ?a ?o)
    :effect (checked ?o))

  (:action GotoLocation
    :parameters (?a - agent ?lStart - location ?lEnd - location ?r - receptacle)
    :precondition (and (atLocation ?a ?lStart) (receptacleAtLocation ?r ?lEnd))
    :effect (and (not (atLocation ?a ?lStart)) (atLocation ?a ?lEnd) (increase (total-cost) 1)))

  (:action OpenObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and (openable ?r) (not (opened ?r))
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l))
    :effect (and (opened ?r) (checked ?r) (increase (total-cost) 1)))

  (:action CloseObject
    :parameters (?a - agent ?l - location ?r - receptacle)
    :precondition (and (openable ?r) (opened ?r)
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l))
    :effect (and (not (opened ?r)) (increase (total-cost) 1)))

  (:action PickupObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and (pickupable ?o) (not (holdsAny ?a))
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (inReceptacle ?o ?r)
      (or (not (openable ?r)) (opened ?r)))
    :effect (and (holds ?a ?o) (holdsAny ?a) (not (inReceptacle ?o ?r))
      (not (objectAtLocation ?o ?l)) (increase (total-cost) 1)))

  (:action PutObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle ?ot - otype ?rt - rtype)
    :precondition (and (holds ?a ?o) (atLocation ?a ?l) (receptacleAtLocation ?r ?l)
      (or (not (openable ?r)) (opened ?r))
      (objectType ?o ?ot) (receptacleType ?r ?rt) (canContain ?rt ?ot))
    :effect (and (inReceptacle ?o ?r) (objectAtLocation ?o ?l)
      (not (holds ?a ?o)) (not (holdsAny ?a)) (increase (total-cost) 1)))

  (:action CleanObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (cleanable ?o) (receptacleType ?r SinkBasinType)
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (holds ?a ?o))
    :effect (and (isClean ?o) (increase (total-cost) 5)))

  (:action HeatObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (heatable ?o) (receptacleType ?r MicrowaveType)
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (holds ?a ?o))
    :effect (and (isHot ?o) (not (isCool ?o)) (increase (total-cost) 5)))

  (:action CoolObject
    :parameters (?a - agent ?l - location ?r - receptacle ?o - object)
    :precondition (and (coolable ?o) (receptacleType ?r FridgeType)
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (holds ?a ?o))
    :effect (and (isCool ?o) (not (isHot ?o)) (increase (total-cost) 5)))

  (:action ToggleObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and (toggleable ?o)
      (atLocation ?a ?l) (receptacleAtLocation ?r ?l) (inReceptacle ?o ?r))
    :effect (and (isToggled ?o)
      (when (isOn ?o) (not (isOn ?o)))
      (when (not (isOn ?o)) (isOn ?o)) (increase (total-cost) 5)))

  (:action SliceObject
    :parameters (?a - agent ?l - location ?co - object ?ko - object)
    :precondition (and (sliceable ?co)
      (or (objectType ?ko KnifeType) (objectType ?ko ButterKnifeType))
      (atLocation ?a ?l) (objectAtLocation ?co ?l) (holds ?a ?ko))
    :effect (and (isSliced ?co) (increase (total-cost) 5)))
$help)
